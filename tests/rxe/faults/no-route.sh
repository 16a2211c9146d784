# The route to the peer's subnet is gone. (Of an IPv4 subnet it would not matter: RoCE names its interface, and Linux then takes
# the other end for a neighbour.)
set_up() { ip -6 route del fd77::/64 dev eth1; }
undo() { ip -6 route add fd77::/64 dev eth1; }
