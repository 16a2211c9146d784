# The cable is out.
set_up() { ip link set eth1 down; }
undo() {
    ip link set eth1 up
    until rdma link show rxe0/1 | grep -q ACTIVE; do sleep 0.1; done
}
