# One of the ends was prepared for larger packets, and the other was forgotten.
set_up() { ip link set eth1 mtu 4200; }
undo() { ip link set eth1 mtu 1500; }
