//! The bindings' layout is C's: pinned in one table, and compared with what the C compiler makes of the
//! installed headers. A wrong offset here would be a wrong byte in a work request, found on somebody's
//! cluster.

#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is a failure")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{align_of, offset_of};
use std::process::{Command, Stdio};

/// How newer headers may differ: rdma-core appends to some structs, and prepends to one.
#[derive(Clone, Copy, PartialEq)]
#[allow(non_camel_case_types, reason = "words of the table")]
enum Growth {
    fixed,
    grows_down,
    grows_up,
}

struct Field {
    c_name: String,
    pinned: usize,
    actual: usize,
}

struct Layout {
    c_type: &'static str,
    growth: Growth,
    /// Size and alignment.
    pinned: (usize, usize),
    actual: (usize, usize),
    fields: Vec<Field>,
}

/// A row: C's name of the type, size, alignment, and offsets; `as` where the field has another name in C.
macro_rules! layouts {
    ($( $kind:ident $name:ident $growth:ident { size = $size:literal, align = $align:literal;
        $( $($field:ident).+ $(as $c_name:literal)? = $offset:literal, )* } )*) => {
        fn layouts() -> Vec<Layout> {
            vec![$( Layout {
                c_type: concat!(stringify!($kind), " ", stringify!($name)),
                growth: Growth::$growth,
                pinned: ($size, $align),
                actual: (size_of::<rdma_sys::$name>(), align_of::<rdma_sys::$name>()),
                fields: vec![$( Field {
                    c_name: c_name([$(stringify!($field)),+].join("."), &[$($c_name)?]),
                    pinned: $offset,
                    actual: offset_of!(rdma_sys::$name, $($field).+),
                } ),*],
            } ),*]
        }
    };
}

fn c_name(rust_name: String, other: &[&str]) -> String {
    other.first().map_or(rust_name, ToString::to_string)
}

#[rustfmt::skip]
layouts! {
    union ibv_gid fixed { size = 16, align = 8; raw = 0, global.subnet_prefix = 0, global.interface_id = 8, }
    struct ibv_gid_entry grows_down { size = 32, align = 8;
        gid = 0, gid_index = 16, port_num = 20, gid_type = 24, ndev_ifindex = 28,
    }
    struct ibv_device fixed { size = 664, align = 8;
        node_type = 16, transport_type = 20, name = 24, dev_name = 88, dev_path = 152, ibdev_path = 408,
    }
    struct ibv_context_ops fixed { size = 256, align = 8;
        _compat_query_device = 0, alloc_mw = 56, poll_cq = 88, req_notify_cq = 96, post_srq_recv = 160,
        post_send = 200, post_recv = 208, _compat_async_event = 248,
    }
    struct ibv_context fixed { size = 328, align = 8;
        device = 0, ops = 8, cmd_fd = 264, async_fd = 268, num_comp_vectors = 272, mutex = 280,
        abi_compat = 320,
    }
    struct verbs_context grows_up { size = 648, align = 8;
        query_port = 0, query_rt_values = 192, create_cq_ex = 200, query_device_ex = 216,
        create_qp_ex = 264, create_srq_ex = 280, sz = 312, context = 320, context.abi_compat = 640,
    }
    struct ibv_device_attr fixed { size = 232, align = 8;
        fw_ver = 0, node_guid = 64, sys_image_guid = 72, max_mr_size = 80, page_size_cap = 88,
        vendor_id = 96, vendor_part_id = 100, hw_ver = 104, max_qp = 108, max_qp_wr = 112,
        device_cap_flags = 116, max_sge = 120, max_cq = 128, max_cqe = 132, max_mr = 136, max_pd = 140,
        max_qp_rd_atom = 144, max_qp_init_rd_atom = 156, atomic_cap = 164, max_pkeys = 224,
        local_ca_ack_delay = 226, phys_port_cnt = 227,
    }
    struct ibv_query_device_ex_input fixed { size = 4, align = 4; comp_mask = 0, }
    struct ibv_odp_caps fixed { size = 24, align = 8; general_caps = 0, per_transport_caps.rc_odp_caps = 8, }
    struct ibv_tso_caps fixed { size = 8, align = 4; max_tso = 0, supported_qpts = 4, }
    struct ibv_rss_caps fixed { size = 32, align = 8;
        supported_qpts = 0, rx_hash_fields_mask = 16, rx_hash_function = 24,
    }
    struct ibv_packet_pacing_caps fixed { size = 12, align = 4;
        qp_rate_limit_min = 0, qp_rate_limit_max = 4, supported_qpts = 8,
    }
    struct ibv_tm_caps fixed { size = 20, align = 4; max_rndv_hdr_size = 0, flags = 8, }
    struct ibv_cq_moderation_caps fixed { size = 4, align = 2; max_cq_count = 0, max_cq_period = 2, }
    struct ibv_pci_atomic_caps fixed { size = 6, align = 2; fetch_add = 0, swap = 2, compare_swap = 4, }
    struct ibv_device_attr_ex grows_down { size = 400, align = 8;
        orig_attr = 0, comp_mask = 232, odp_caps = 240, completion_timestamp_mask = 264,
        hca_core_clock = 272, device_cap_flags_ex = 280, max_wq_type_rq = 328, raw_packet_caps = 344,
        tm_caps = 348, max_dm_size = 376, pci_atomic_caps = 384, xrc_odp_caps = 392, phys_port_cnt_ex = 396,
    }
    struct ibv_port_attr grows_down { size = 52, align = 4;
        state = 0, max_mtu = 4, active_mtu = 8, gid_tbl_len = 12, port_cap_flags = 16, max_msg_sz = 20,
        pkey_tbl_len = 32, lid = 34, sm_lid = 36, lmc = 38, sm_sl = 40, active_width = 43,
        active_speed = 44, phys_state = 45, link_layer = 46, flags = 47, port_cap_flags2 = 48,
    }
    struct ibv_pd fixed { size = 16, align = 8; context = 0, handle = 8, }
    struct ibv_mr fixed { size = 48, align = 8;
        context = 0, pd = 8, addr = 16, length = 24, handle = 32, lkey = 36, rkey = 40,
    }
    struct ibv_mw fixed { size = 32, align = 8;
        context = 0, pd = 8, rkey = 16, handle = 20, type_ as "type" = 24,
    }
    struct ibv_mw_bind_info fixed { size = 32, align = 8;
        mr = 0, addr = 8, length = 16, mw_access_flags = 24,
    }
    struct ibv_ah fixed { size = 24, align = 8; context = 0, pd = 8, handle = 16, }
    struct ibv_comp_channel fixed { size = 16, align = 8; context = 0, fd = 8, refcnt = 12, }
    struct ibv_cq fixed { size = 128, align = 8;
        context = 0, channel = 8, cq_context = 16, handle = 24, cqe = 28, mutex = 32, cond = 72,
        comp_events_completed = 120, async_events_completed = 124,
    }
    struct ibv_cq_ex grows_down { size = 288, align = 8;
        context = 0, channel = 8, cqe = 28, mutex = 32, cond = 72, comp_mask = 128, status = 132,
        wr_id = 136, start_poll = 144, next_poll = 152, end_poll = 160, read_opcode = 168,
        read_vendor_err = 176, read_byte_len = 184, read_imm_data = 192, read_qp_num = 200,
        read_wc_flags = 216, read_completion_ts = 248, read_completion_wallclock_ns = 280,
    }
    struct ibv_cq_init_attr_ex grows_down { size = 56, align = 8;
        cqe = 0, cq_context = 8, channel = 16, comp_vector = 24, wc_flags = 32, comp_mask = 40, flags = 44,
        parent_domain = 48,
    }
    struct ibv_poll_cq_attr fixed { size = 4, align = 4; comp_mask = 0, }
    struct ibv_wc fixed { size = 48, align = 8;
        wr_id = 0, status = 8, opcode = 12, vendor_err = 16, byte_len = 20,
        __bindgen_anon_1.imm_data as "imm_data" = 24, qp_num = 28, src_qp = 32, wc_flags = 36,
        pkey_index = 40, slid = 42, sl = 44, dlid_path_bits = 45,
    }
    struct ibv_wc_tm_info fixed { size = 16, align = 8; tag = 0, priv_ as "priv" = 8, }
    struct ibv_srq fixed { size = 128, align = 8;
        context = 0, srq_context = 8, pd = 16, handle = 24, mutex = 32, cond = 72, events_completed = 120,
    }
    struct ibv_srq_attr fixed { size = 12, align = 4; max_wr = 0, max_sge = 4, srq_limit = 8, }
    struct ibv_srq_init_attr fixed { size = 24, align = 8; srq_context = 0, attr = 8, }
    struct ibv_qp fixed { size = 160, align = 8;
        context = 0, qp_context = 8, pd = 16, send_cq = 24, recv_cq = 32, srq = 40, handle = 48,
        qp_num = 52, state = 56, qp_type = 60, mutex = 64, cond = 104, events_completed = 152,
    }
    struct ibv_qp_ex grows_down { size = 352, align = 8;
        qp_base = 0, comp_mask = 160, wr_id = 168, wr_flags = 176, wr_atomic_cmp_swp = 184,
        wr_rdma_read = 216, wr_rdma_write = 224, wr_rdma_write_imm = 232, wr_send = 240, wr_send_imm = 248,
        wr_set_ud_addr = 272, wr_set_inline_data = 288, wr_set_inline_data_list = 296, wr_set_sge = 304,
        wr_set_sge_list = 312, wr_start = 320, wr_complete = 328, wr_abort = 336, wr_atomic_write = 344,
    }
    struct ibv_qp_cap fixed { size = 20, align = 4;
        max_send_wr = 0, max_recv_wr = 4, max_send_sge = 8, max_recv_sge = 12, max_inline_data = 16,
    }
    struct ibv_qp_init_attr fixed { size = 64, align = 8;
        qp_context = 0, send_cq = 8, recv_cq = 16, srq = 24, cap = 32, qp_type = 52, sq_sig_all = 56,
    }
    struct ibv_rx_hash_conf fixed { size = 24, align = 8;
        rx_hash_function = 0, rx_hash_key_len = 1, rx_hash_key = 8, rx_hash_fields_mask = 16,
    }
    struct ibv_qp_init_attr_ex grows_down { size = 136, align = 8;
        qp_context = 0, send_cq = 8, recv_cq = 16, srq = 24, cap = 32, qp_type = 52, sq_sig_all = 56,
        comp_mask = 60, pd = 64, xrcd = 72, create_flags = 80, max_tso_header = 84, rwq_ind_tbl = 88,
        rx_hash_conf = 96, source_qpn = 120, send_ops_flags = 128,
    }
    struct ibv_qp_attr grows_down { size = 144, align = 8;
        qp_state = 0, cur_qp_state = 4, path_mtu = 8, path_mig_state = 12, qkey = 16, rq_psn = 20,
        sq_psn = 24, dest_qp_num = 28, qp_access_flags = 32, cap = 36, ah_attr = 56, alt_ah_attr = 88,
        pkey_index = 120, alt_pkey_index = 122, en_sqd_async_notify = 124, sq_draining = 125,
        max_rd_atomic = 126, max_dest_rd_atomic = 127, min_rnr_timer = 128, port_num = 129, timeout = 130,
        retry_cnt = 131, rnr_retry = 132, alt_port_num = 133, alt_timeout = 134, rate_limit = 136,
    }
    struct ibv_global_route fixed { size = 24, align = 8;
        dgid = 0, flow_label = 16, sgid_index = 20, hop_limit = 21, traffic_class = 22,
    }
    struct ibv_ah_attr fixed { size = 32, align = 8;
        grh = 0, dlid = 24, sl = 26, src_path_bits = 27, static_rate = 28, is_global = 29, port_num = 30,
    }
    struct ibv_grh fixed { size = 40, align = 8;
        version_tclass_flow = 0, paylen = 4, next_hdr = 6, hop_limit = 7, sgid = 8, dgid = 24,
    }
    struct ibv_sge fixed { size = 16, align = 8; addr = 0, length = 8, lkey = 12, }
    struct ibv_data_buf fixed { size = 16, align = 8; addr = 0, length = 8, }
    struct ibv_send_wr fixed { size = 128, align = 8;
        wr_id = 0, next = 8, sg_list = 16, num_sge = 24, opcode = 28, send_flags = 32,
        __bindgen_anon_1.imm_data as "imm_data" = 36,
        __bindgen_anon_1.invalidate_rkey as "invalidate_rkey" = 36, wr.rdma.remote_addr = 40,
        wr.rdma.rkey = 48, wr.atomic.remote_addr = 40, wr.atomic.compare_add = 48, wr.atomic.swap = 56,
        wr.atomic.rkey = 64, wr.ud.ah = 40, wr.ud.remote_qpn = 48, wr.ud.remote_qkey = 52,
        qp_type.xrc.remote_srqn = 72, __bindgen_anon_2.bind_mw.mw as "bind_mw.mw" = 80,
        __bindgen_anon_2.bind_mw.rkey as "bind_mw.rkey" = 88,
        __bindgen_anon_2.bind_mw.bind_info as "bind_mw.bind_info" = 96,
        __bindgen_anon_2.tso.hdr as "tso.hdr" = 80, __bindgen_anon_2.tso.hdr_sz as "tso.hdr_sz" = 88,
        __bindgen_anon_2.tso.mss as "tso.mss" = 90,
    }
    struct ibv_recv_wr fixed { size = 32, align = 8; wr_id = 0, next = 8, sg_list = 16, num_sge = 24, }
    struct ibv_async_event fixed { size = 16, align = 8;
        element.cq = 0, element.qp = 0, element.srq = 0, element.port_num = 0, event_type = 8,
    }
    struct ibv_values_ex fixed { size = 24, align = 8; comp_mask = 0, raw_clock = 8, }
    struct ibv_ece grows_down { size = 12, align = 4; vendor_id = 0, options = 4, comp_mask = 8, }
}

/// Constants by whose value something is decided or sent, those that this crate names by hand among them.
macro_rules! constants {
    ($($name:ident)*) => {
        const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), rdma_sys::$name as i64)),*];
    };
}

constants! {
    IBV_QPF_GRH_REQUIRED IBV_ACCESS_OPTIONAL_RANGE IBV_ACCESS_RELAXED_ORDERING IBV_ACCESS_REMOTE_WRITE
    IBV_LINK_LAYER_UNSPECIFIED IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_GID_TYPE_ROCE_V2
    IBV_NODE_UNKNOWN IBV_QPT_RC IBV_QPT_UD IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR IBV_MTU_4096
    IBV_QP_STATE IBV_QP_PORT IBV_QP_AV IBV_QP_DEST_QPN IBV_QP_RATE_LIMIT IBV_SEND_SIGNALED IBV_SEND_INLINE
    IBV_WR_RDMA_WRITE IBV_WR_RDMA_WRITE_WITH_IMM IBV_WR_SEND IBV_WC_SUCCESS IBV_WC_RETRY_EXC_ERR IBV_WC_RECV
    IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_STANDARD_FLAGS IBV_CREATE_CQ_SUP_WC_FLAGS IBV_QP_INIT_ATTR_PD
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS IBV_QP_EX_WITH_RDMA_WRITE IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    IBV_QP_EX_WITH_SEND IBV_EVENT_PORT_ERR IBV_EVENT_QP_FATAL IBV_PORT_ACTIVE IBV_SYSFS_PATH_MAX
}

#[test]
fn layout_is_pinned() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIP layout_is_pinned: the numbers are x86_64's; pthread types differ elsewhere");
        return;
    }
    for layout in layouts() {
        assert_eq!(layout.actual, layout.pinned, "size and alignment of {}", layout.c_type);
        for field in &layout.fields {
            assert_eq!(field.actual, field.pinned, "offset of {} in {}", field.c_name, layout.c_type);
        }
    }
}

/// An enum here would make an event that only a newer kernel knows undefined behaviour.
#[test]
fn an_event_type_can_hold_any_value() {
    let event = rdma_sys::ibv_async_event { event_type: u32::MAX, ..Default::default() };
    let value: u32 = event.event_type;
    assert_eq!(value, u32::MAX);
}

#[test]
fn layout_matches_c_headers() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("layout");
    // The newest field that the bindings have: older headers cannot be asked about it.
    if let Err(reason) =
        compile("size_t newest = offsetof(struct ibv_qp_ex, wr_atomic_write);", &["-c", "-o", "/dev/null"])
    {
        eprintln!(
            "SKIP layout_matches_c_headers: no C compiler, or no <infiniband/verbs.h> as new as 44: {reason}"
        );
        return;
    }
    compile(&c_program(), &["-o", program.to_str().unwrap()]).unwrap();
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut c = text.lines().map(|line| line.parse::<i64>().unwrap());
    let mut wrong = Vec::new();
    for layout in layouts() {
        compare(&layout, &mut c, &mut wrong);
    }
    for &(name, value) in CONSTANTS {
        let theirs = c.next().unwrap();
        if theirs != value {
            wrong.push(format!("{name}: {value}, in C {theirs}"));
        }
    }
    assert_eq!(c.next(), None, "the program printed more than was asked");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Prints one number a line: for each row of the table its size, alignment and offsets; then the constants.
fn c_program() -> String {
    let mut body = String::new();
    for Layout { c_type, fields, .. } in layouts() {
        writeln!(body, "P(sizeof({c_type})); P(_Alignof({c_type}));").unwrap();
        for field in fields {
            writeln!(body, "P(offsetof({c_type}, {}));", field.c_name).unwrap();
        }
    }
    for (name, _) in CONSTANTS {
        writeln!(body, "P({name});").unwrap();
    }
    format!(
        "#include <stdio.h>\n#define P(n) printf(\"%lld\\n\", (long long)(n))\nint main(void) {{\n{body}}}"
    )
}

/// Compiles C source after the verbs header; an error is the compiler's first line, or why it did not run.
fn compile(source: &str, arguments: &[&str]) -> Result<(), String> {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&cc);
    command.args(["-x", "c", "-"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{cc}: {error}"))?;
    let mut stdin = child.stdin.take().unwrap();
    // A compiler that stops at the first line closes the pipe early; its message says why.
    let _ = writeln!(stdin, "#include <infiniband/verbs.h>\n{source}");
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(message.lines().find(|line| line.contains("error")).unwrap_or(&message).to_owned())
}

fn compare(layout: &Layout, c: &mut impl Iterator<Item = i64>, wrong: &mut Vec<String>) {
    let mut next = || usize::try_from(c.next().unwrap()).unwrap();
    let (size, align) = layout.actual;
    let (c_size, c_align) = (next(), next());
    let grown = layout.growth != Growth::fixed && c_size > size;
    if align != c_align || (size != c_size && !grown) {
        wrong.push(format!("{}: size {size}, align {align}; in C {c_size}, {c_align}", layout.c_type));
    }
    let shift = if layout.growth == Growth::grows_up { c_size.saturating_sub(size) } else { 0 };
    for field in &layout.fields {
        let (ours, theirs) = (field.actual + shift, next());
        if ours != theirs {
            wrong.push(format!("{}.{}: offset {ours}, in C {theirs}", layout.c_type, field.c_name));
        }
    }
}
