# A switch on the way drops one packet in thirty.
set_up() { tc qdisc replace dev eth1 root netem loss 3%; }
undo() { tc qdisc del dev eth1 root; }
