# The path is gone for most of a second, once, in the midst of a run.
set_up() {
    nft add table inet flap
    nft 'add chain inet flap in { type filter hook input priority 0; }'
    (
        sleep 3
        nft add rule inet flap in iifname eth1 drop
        usleep 900000
        nft flush table inet flap
    ) >/dev/null 2>&1 &
}
undo() { nft delete table inet flap; }
