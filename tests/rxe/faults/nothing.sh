# The network is sound: the fault is in what is asked for, or in the limits of who asks.
set_up() { :; }
undo() { :; }
