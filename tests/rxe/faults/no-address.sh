# Nobody has given the interface an address.
set_up() { ip -4 addr flush dev eth1; ip -6 addr flush dev eth1 scope global; }
undo() {
    n=$(hostname | sed 's/a/1/; s/b/2/')
    ip addr add "10.77.0.$n/24" dev eth1
    ip addr add "fd77::$n/64" dev eth1 nodad
    until grep -qs 0a4d /sys/class/infiniband/rxe0/ports/1/gids/*; do sleep 0.1; done
}
