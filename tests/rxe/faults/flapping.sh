# The path is gone for most of a second, once, in the midst of a run: three seconds after its first packets.
set_up() {
    nft add table inet flap
    nft 'add chain inet flap in { type filter hook input priority 0; }'
    (
        cd /sys/class/infiniband/rxe0/ports/1/hw_counters
        read -r before <rcvd_pkts
        until read -r now <rcvd_pkts && [ $((now - before)) -gt 20 ]; do sleep 0.1; done
        sleep 3
        nft add rule inet flap in iifname eth1 drop
        usleep 900000
        nft flush table inet flap
    ) >/dev/null 2>&1 &
}
undo() { nft delete table inet flap; }
