# shellcheck shell=bash
# Builds the lab's image: a kernel and an initramfs in which everything runs from memory. Sourced by ci/rxe-lab.
#
# The image is cached under a key made of this folder's contents and the versions of all packages that go into it, so
# every checkout shares one build, and an upgraded libibverbs or an edited init gives a new one. The programs and the C
# library are this machine's own: what cargo builds here runs there.

# Packages whose files are in the image (libraries come along by ldd; libc6 stands for the tool chain's).
IMAGE_PACKAGES=(busybox-static coreutils dash dropbear-bin ibverbs-providers ibverbs-utils iproute2 iputils-ping kmod libc6
    libgcc-s1 libibverbs1 librdmacm1 libnftables1 nftables perftest rdma-core strace util-linux)

IMAGE_TOOLS=(dropbear dash ip rdma tc ss bridge nft ping kmod setpriv prlimit taskset chrt lscpu timeout env strace
    ibv_devinfo ibv_devices ibv_rc_pingpong ibv_ud_pingpong
    ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat)

# virtio and 9p reach the host; the rest is what tests break links with. modprobe resolves what each depends on.
IMAGE_MODULES=(virtio_pci virtio_net virtio_rng 9pnet_virtio 9p ipv6
    crc32_generic ib_uverbs rdma_ucm rdma_rxe
    nf_tables nft_ct nft_limit nft_log nft_numgen nft_quota nft_reject_inet
    sch_netem sch_tbf sch_prio sch_ingress cls_u32 cls_matchall act_gact act_mirred veth dummy)

image_key() {
    local kernel=$1
    {
        basename "$kernel"
        find "$LAB_SOURCES" -type f -print0 | sort -z | xargs -0 sha256sum | sed "s|$LAB_SOURCES/||"
        dpkg-query --show --showformat='${Package} ${Version}\n' "${IMAGE_PACKAGES[@]}" 2>/dev/null || true
    } | sha256sum | cut -c 1-16
}

# Prints the folder that holds vmlinuz and initrd, after building it if nobody has yet.
image() {
    local kernel cache folder
    kernel=$(cached_kernel) || die 3 "cannot build the lab's image: no kernel in $(cache_dir)/kernel" "hint: run ci/setup"
    cache=$(cache_dir)/image
    folder=$cache/$(image_key "$kernel")
    if [ ! -d "$folder" ]; then
        mkdir -p "$cache"
        # Two checkouts may want the same image at once: the second waits and finds it built.
        (
            flock --wait "$BUILD_DEADLINE" 8 || die 3 "cannot build the lab's image: another build holds $cache/lock"
            # Not `|| build_image`, here or in a caller: set -e would be off inside, and a failing step passed over.
            if [ ! -d "$folder" ]; then
                build_image "$kernel" "$folder"
            fi
        ) 8>"$cache/lock"
    fi
    # Its age is that of its last use, by which build_image removes old ones.
    touch "$folder"
    printf '%s\n' "$folder"
}

build_image() {
    local kernel=$1 folder=$2 work tool
    require_tools busybox cpio gcc depmod ldd flock "${IMAGE_TOOLS[@]}"
    find "$(dirname "$folder")" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} +
    work=$(mktemp -d "$(dirname "$folder")/.build.XXXXXX")
    # shellcheck disable=SC2064  # the folder's name is wanted as it is now
    trap "rm -rf '$work'" EXIT
    note "building the lab's image from $(basename "$kernel")"

    local tree=$work/tree
    skeleton "$tree"
    for tool in "${IMAGE_TOOLS[@]}"; do
        add_program "$tree" "$(command -v "$tool")"
    done
    add_verbs "$tree"
    add_modules "$tree" "$kernel" "$work/modules"
    gcc -static -O2 -Wall -Wextra -Werror -o "$tree/usr/bin/lab-run" "$LAB_SOURCES/lab-run.c"
    install -m 0755 "$LAB_SOURCES/init" "$tree/init"

    mkdir "$work/image"
    cp "$kernel"/boot/vmlinuz-* "$work/image/vmlinuz"
    (cd "$tree" && find . -print0 | sort -z | cpio --quiet --null --create --format=newc --owner=+0:+0) |
        gzip -1 >"$work/image/initrd"
    mv -T "$work/image" "$folder"
}

# Merged /usr as on the host, so that an interpreter's or a library's path means the same.
skeleton() {
    local tree=$1 applet folder
    mkdir -p "$tree"/{dev,etc,proc,root,run,share,sys,tmp,usr/bin,usr/lib,usr/lib64}
    for folder in bin lib lib64; do
        ln -s "usr/$folder" "$tree/$folder"
    done
    ln -s usr/bin "$tree/sbin"
    ln -s bin "$tree/usr/sbin"

    # busybox first: the real tools replace the applets of the same name.
    cp "$(readlink -f "$(command -v busybox)")" "$tree/usr/bin/busybox"
    while read -r applet; do
        [ "$applet" = busybox ] || ln -s busybox "$tree/usr/bin/$applet"
    done < <(busybox --list)

    # Not busybox's own shell: as Debian builds it, it prefers its applets to programs of the same name in PATH, and
    # `ip`, `timeout` or `modprobe` in a script would not be the real ones.
    ln -sf dash "$tree/usr/bin/sh"

    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/tmp:/bin/sh' >"$tree/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$tree/etc/group"
    printf '%s\n' 'passwd: files' 'group: files' 'hosts: files' >"$tree/etc/nsswitch.conf"
    printf '%s\n' /bin/sh >"$tree/etc/shells"
    printf '%s\n' '127.0.0.1 localhost' '::1 localhost' \
        '10.77.0.1 a' '10.77.0.2 b' 'fd77::1 a' 'fd77::2 b' >"$tree/etc/hosts"
    # The tools report the distribution they run on.
    cp /etc/os-release "$tree/etc/os-release"
}

add_program() {
    local tree=$1 path=$2
    rm -f "$tree/usr/bin/${path##*/}"
    cp "$(readlink -f "$path")" "$tree/usr/bin/${path##*/}"
    add_libraries "$tree" "$path"
}

# Copies what ldd finds, each under the name the loader will ask for.
add_libraries() {
    local tree=$1 library
    while read -r library; do
        [ -e "$tree$library" ] || install -D -m 0755 "$library" "$tree$library"
    done < <(ldd "$2" 2>/dev/null | grep -o '/[^ ]*')
}

add_verbs() {
    local tree=$1 libraries provider
    libraries=$(dirname "$(ldd "$(command -v ibv_devinfo)" | awk '$1 == "libibverbs.so.1" { print $3 }')")
    libraries=/usr/${libraries#/usr/}
    provider=$(find "$libraries/libibverbs" -name 'librxe-rdmav*.so' | head -n 1)
    [ -n "$provider" ] || die 3 "cannot build the lab's image: no rxe provider in $libraries/libibverbs" "hint: run ci/setup"
    install -D -m 0644 "$provider" "$tree$provider"
    add_libraries "$tree" "$provider"
    install -D -m 0644 /etc/libibverbs.d/rxe.driver "$tree/etc/libibverbs.d/rxe.driver"
    # Opened at run time, or needed by what cargo builds, so that no ldd above finds them.
    local name
    for name in libgcc_s.so.1 librdmacm.so.1 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do
        [ -e "$tree$libraries/$name" ] || install -D -m 0755 "$(find_library "$name")" "$tree$libraries/$name"
    done
    # kmod is one program with many names.
    for name in modprobe insmod rmmod lsmod modinfo depmod; do
        ln -sf kmod "$tree/usr/bin/$name"
    done
}

find_library() {
    local found
    found=$(find /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /lib64 -name "$1" 2>/dev/null | head -n 1)
    [ -n "$found" ] || die 3 "cannot build the lab's image: no library $1 on this machine" "hint: run ci/setup"
    printf '%s\n' "$found"
}

# The package has no modules.dep (its installation would make it), so it is made here, twice: once for all the modules,
# to know what each needs, and once for those that are taken.
add_modules() {
    local tree=$1 kernel=$2 work=$3 release module line path
    release=$(basename "$kernel"/lib/modules/*)
    mkdir -p "$work/lib/modules"
    cp -r "$kernel/lib/modules/$release" "$work/lib/modules/$release"
    find "$work" -name '*.ko.xz' -exec xz --decompress {} +
    depmod --basedir "$work" "$release"

    local target=$tree/usr/lib/modules/$release
    mkdir -p "$target"
    cp "$work/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} "$target/"
    for module in "${IMAGE_MODULES[@]}"; do
        # "insmod FILE" for each that is needed, "builtin NAME" for what the kernel has.
        while read -r line path _; do
            [ "$line" = insmod ] || continue
            path=${path#"$work/lib/modules/$release/"}
            install -D -m 0644 "$work/lib/modules/$release/$path" "$target/$path"
        done < <(modprobe --dirname "$work" --set-version "$release" --config /dev/null --show-depends "$module" ||
            die 3 "cannot build the lab's image: no module $module in $(basename "$kernel")")
    done
    depmod --basedir "$tree/usr" "$release"
}
