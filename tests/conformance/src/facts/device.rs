//! The device: lists, limits, ports, and the words for numbers.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::Bench;
use crate::shown::{Errno, hex};

facts! { "device":
    the_list_ends_where_its_count_says,
    the_open_device_has_the_name_it_was_opened_by,
    there_is_a_completion_vector,
    limits_are_those_of_a_working_device,
    the_extended_limits_begin_with_the_limits,
    the_guid_of_the_list_is_the_one_of_the_limits,
    the_port_is_active_and_its_packets_fit_its_largest,
    a_port_that_does_not_exist_is_refused,
    only_an_ethernet_port_needs_a_global_route_always,
    the_first_partition_key_is_the_default_one,
    a_partition_key_beyond_the_table_is_refused,
}

fn the_list_ends_where_its_count_says(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (names, count) = bench.device().list()?;
    notes.equal("devices before the NULL", count, names.len() as i32);
    let ours = names.iter().filter(|name| *name == bench.device().name()).count();
    notes.equal("devices of this name", 1, ours);
    Ok(())
}

fn the_open_device_has_the_name_it_was_opened_by(bench: &Bench, notes: &mut Notes) -> Outcome {
    notes.equal("name", bench.device().name().to_owned(), bench.device().context_name());
    Ok(())
}

fn there_is_a_completion_vector(bench: &Bench, notes: &mut Notes) -> Outcome {
    let vectors = bench.device().completion_vectors();
    notes.holds("num_comp_vectors", "1 or more", vectors >= 1, vectors);
    Ok(())
}

fn limits_are_those_of_a_working_device(bench: &Bench, notes: &mut Notes) -> Outcome {
    let limits = bench.device().limits()?;
    let sum = i64::from(limits.max_qp);
    notes.holds("max_qp", "2 or more", sum >= 2, sum);
    let least = [
        ("max_qp_wr", limits.max_qp_wr, 128),
        ("max_sge", limits.max_sge, 2),
        ("max_cq", limits.max_cq, 2),
        ("max_cqe", limits.max_cqe, 256),
        ("max_mr", limits.max_mr, 2),
        ("max_pd", limits.max_pd, 2),
        ("max_qp_rd_atom", limits.max_qp_rd_atom, 1),
        ("phys_port_cnt", i32::from(limits.phys_port_cnt), 1),
        ("max_pkeys", i32::from(limits.max_pkeys), 1),
    ];
    for (name, seen, least) in least {
        notes.holds(name, &format!("{least} or more"), seen >= least, seen);
    }
    let pages = limits.page_size_cap;
    notes.holds("page_size_cap", "pages of 4 KiB", pages & 4096 != 0, format!("{pages:#x}"));
    let size = limits.max_mr_size;
    notes.holds("max_mr_size", "1 MiB or more", size >= 1 << 20, size);
    Ok(())
}

fn the_extended_limits_begin_with_the_limits(bench: &Bench, notes: &mut Notes) -> Outcome {
    let old = bench.device().limits()?;
    let new = match bench.device().extended_limits() {
        Ok(attr) => attr.orig_attr,
        Err(errno) => return Err(Obstacle(format!("ibv_query_device_ex: {errno}"))),
    };
    notes.equal("max_qp", old.max_qp, new.max_qp);
    notes.equal("max_qp_wr", old.max_qp_wr, new.max_qp_wr);
    notes.equal("max_cqe", old.max_cqe, new.max_cqe);
    notes.equal("max_mr_size", old.max_mr_size, new.max_mr_size);
    notes.equal("vendor_id", old.vendor_id, new.vendor_id);
    notes.equal("node_guid", old.node_guid, new.node_guid);
    notes.equal("phys_port_cnt", old.phys_port_cnt, new.phys_port_cnt);
    Ok(())
}

fn the_guid_of_the_list_is_the_one_of_the_limits(bench: &Bench, notes: &mut Notes) -> Outcome {
    let guid = bench.device().limits()?.node_guid;
    notes.holds("node_guid", "not 0", guid != 0, format!("{guid:#x}"));
    let Some(listed) = bench.device().guid() else {
        return Err(Obstacle("the library has no ibv_get_device_guid".into()));
    };
    notes.equal("ibv_get_device_guid", format!("{guid:#x}"), format!("{listed:#x}"));
    Ok(())
}

fn the_port_is_active_and_its_packets_fit_its_largest(bench: &Bench, notes: &mut Notes) -> Outcome {
    let port = bench.port();
    notes.equal("state", sys::IBV_PORT_ACTIVE, port.state);
    let known = sys::IBV_MTU_256..=sys::IBV_MTU_4096;
    notes.holds("active_mtu", "one of the five", known.contains(&port.active_mtu), port.active_mtu);
    notes.holds("max_mtu", "no less", port.max_mtu >= port.active_mtu, port.max_mtu);
    notes.holds("max_msg_sz", "1 MiB or more", port.max_msg_sz >= 1 << 20, port.max_msg_sz);
    notes.holds("gid_tbl_len", "1 or more", port.gid_tbl_len >= 1, port.gid_tbl_len);
    notes.holds("pkey_tbl_len", "1 or more", port.pkey_tbl_len >= 1, port.pkey_tbl_len);
    let kinds = [sys::IBV_LINK_LAYER_INFINIBAND, sys::IBV_LINK_LAYER_ETHERNET];
    notes.either("link_layer", &kinds, u32::from(port.link_layer));
    Ok(())
}

fn a_port_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let count = bench.device().limits()?.phys_port_cnt;
    for (words, port_num) in [("port 0", 0), ("the port after the last", count + 1)] {
        let errno = bench.device().port(port_num).err().unwrap_or(Errno::DONE);
        notes.equal(words, Errno::EINVAL, errno);
    }
    Ok(())
}

/// RoCE has no other addresses; `ibv_port_attr.flags` says so, and InfiniBand's does not.
fn only_an_ethernet_port_needs_a_global_route_always(bench: &Bench, notes: &mut Notes) -> Outcome {
    let port = bench.port();
    let ethernet = u32::from(port.link_layer) == sys::IBV_LINK_LAYER_ETHERNET;
    let required = u32::from(port.flags) & sys::IBV_QPF_GRH_REQUIRED != 0;
    notes.equal("IBV_QPF_GRH_REQUIRED", ethernet, required);
    if ethernet {
        notes.equal("lid", 0, port.lid);
    }
    Ok(())
}

fn the_first_partition_key_is_the_default_one(bench: &Bench, notes: &mut Notes) -> Outcome {
    match bench.device().pkey(bench.port_num(), 0) {
        Ok(pkey) => notes.equal("key", hex(0xffff), hex(pkey.into())),
        Err(errno) => notes.equal("ibv_query_pkey", Errno::DONE, errno),
    }
    Ok(())
}

fn a_partition_key_beyond_the_table_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = i32::from(bench.port().pkey_tbl_len);
    for (words, index) in [("index of the table's length", end), ("index -1", -1)] {
        let refused = bench.device().pkey(bench.port_num(), index).is_err();
        notes.holds(words, "refused", refused, if refused { "refused" } else { "done" });
    }
    Ok(())
}
