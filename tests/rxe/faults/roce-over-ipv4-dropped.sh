# The network carries RoCE over IPv6 and not over IPv4.
set_up() {
    nft add table ip fault
    nft 'add chain ip fault in { type filter hook input priority 0; }'
    nft add rule ip fault in udp dport 4791 drop
}
undo() { nft delete table ip fault; }
