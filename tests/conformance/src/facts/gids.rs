//! The GID table, through the three verbs that read it.

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, GidEntry};
use crate::shown::Errno;

facts! { "gids":
    the_queries_agree_on_every_entry,
    the_table_has_the_used_entries_and_no_others,
    an_unused_entry_has_no_data,
    an_entry_beyond_the_table_is_refused,
    an_entry_of_a_port_that_does_not_exist_is_refused,
    flags_of_the_query_are_refused,
}

/// Every entry that the single query gives.
fn entries(bench: &Bench) -> Vec<GidEntry> {
    let port = u32::from(bench.port_num());
    let indices = 0..bench.port().gid_tbl_len as u32;
    indices.filter_map(|index| bench.device().gid_entry(port, index, 0).ok()).collect()
}

fn the_queries_agree_on_every_entry(bench: &Bench, notes: &mut Notes) -> Outcome {
    let entries = entries(bench);
    notes.holds("used entries", "1 or more", !entries.is_empty(), entries.len());
    for entry in entries {
        let name = format!("ibv_query_gid of index {}", entry.index);
        let old = bench.device().gid(bench.port_num(), entry.index as i32);
        let seen = old.map_or("refused".to_owned(), |gid| gid.to_string());
        notes.equal(&name, entry.gid.to_string(), seen);
        notes.equal("port_num", u32::from(bench.port_num()), entry.port_num);
        notes.holds("gid_type", "0, 1 or 2", entry.gid_type <= 2, entry.gid_type);
    }
    Ok(())
}

fn the_table_has_the_used_entries_and_no_others(bench: &Bench, notes: &mut Notes) -> Outcome {
    let room = bench.port().gid_tbl_len as usize + 1;
    let table =
        bench.device().gid_table(room).map_err(|errno| Obstacle(format!("ibv_query_gid_table: {errno}")))?;
    let port = u32::from(bench.port_num());
    let of_port: Vec<GidEntry> = table.into_iter().filter(|entry| entry.port_num == port).collect();
    let singles = entries(bench);
    let agree = of_port == singles;
    notes.holds(
        "entries of the port",
        &format!("the {} of the single queries", singles.len()),
        agree,
        if agree { "they".to_owned() } else { format!("{of_port:?}") },
    );
    Ok(())
}

fn an_unused_entry_has_no_data(bench: &Bench, notes: &mut Notes) -> Outcome {
    let port = u32::from(bench.port_num());
    let used = entries(bench);
    let indices = 0..bench.port().gid_tbl_len as u32;
    let Some(unused) = indices.rev().find(|index| used.iter().all(|entry| entry.index != *index)) else {
        notes.holds("table", "full, or with an unused entry", true, "full");
        return Ok(());
    };
    let errno = bench.device().gid_entry(port, unused, 0).err().unwrap_or(Errno::DONE);
    notes.equal("ibv_query_gid_ex", Errno::ENODATA, errno);
    let old = bench.device().gid(bench.port_num(), unused as i32);
    notes.equal("ibv_query_gid", "::".to_owned(), old.map_or("refused".into(), |gid| gid.to_string()));
    Ok(())
}

fn an_entry_beyond_the_table_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = bench.port().gid_tbl_len;
    let errno = bench.device().gid_entry(u32::from(bench.port_num()), end as u32, 0);
    notes.equal("ibv_query_gid_ex", Errno::EINVAL, errno.err().unwrap_or(Errno::DONE));
    let old = bench.device().gid(bench.port_num(), end);
    notes.holds("ibv_query_gid", "refused", old.is_none(), old.map_or("refused", |_| "done"));
    Ok(())
}

fn an_entry_of_a_port_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let ports = u32::from(bench.device().limits()?.phys_port_cnt);
    for port in [0, ports + 1] {
        let errno = bench.device().gid_entry(port, 0, 0).err().unwrap_or(Errno::DONE);
        notes.equal(&format!("port {port}"), Errno::EINVAL, errno);
    }
    Ok(())
}

/// "For now must be 0", as the manual page has it.
fn flags_of_the_query_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let errno = bench.device().gid_entry(u32::from(bench.port_num()), 0, 1).err().unwrap_or(Errno::DONE);
    notes.either("flags 1", &[Errno::EINVAL, Errno::EOPNOTSUPP], errno);
    Ok(())
}
