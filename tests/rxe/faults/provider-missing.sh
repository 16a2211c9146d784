# An image whose libraries know nothing of the kernel's adapter.
set_up() {
    mkdir -p /run/providers.away
    mv /usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so /run/providers.away/
}
undo() { mv /run/providers.away/librxe-*.so /usr/lib/x86_64-linux-gnu/libibverbs/; }
