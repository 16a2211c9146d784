# A firewall between the hosts lets TCP through and RoCE (UDP port 4791) not.
set_up() {
    nft add table inet fault
    nft 'add chain inet fault in { type filter hook input priority 0; }'
    nft add rule inet fault in udp dport 4791 drop
}
undo() { nft delete table inet fault; }
