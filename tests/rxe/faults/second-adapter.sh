# A second adapter was put into the subnet of the first.
set_up() {
    rdma link add rxe1 type rxe netdev eth0
    ip addr add 10.77.0.77/24 dev eth0
}
undo() {
    ip addr del 10.77.0.77/24 dev eth0
    rdma link delete rxe1
}
