//! Slurm's lists of hosts.

/// The first host of `gpu[08-11,20],login1`: `gpu08`. `None` where it is no such list.
pub(super) fn first_host(list: &str) -> Option<String> {
    let list = list.trim();
    let end = list.find(',').unwrap_or(list.len());
    let Some(open) = list.find('[').filter(|open| *open < end) else {
        return Some(list[..end].to_owned()).filter(|host| !host.is_empty());
    };
    let close = open + list[open..].find(']')?;
    let number = list[open + 1..close].split([',', '-']).next()?;
    // What follows a bracket belongs to the name, up to the next host; a second bracket is part of it too.
    let rest = &list[close + 1..];
    let rest = first_host(&format!("x{rest}"))?;
    Some(format!("{}{number}{}", &list[..open], &rest[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_of_list() {
        let first = |list: &str| first_host(list).unwrap();
        assert_eq!(first("node1"), "node1");
        assert_eq!(first("node1,node2"), "node1");
        assert_eq!(first("gpu[08-11],login1"), "gpu08");
        assert_eq!(first("gpu[3,7-9]"), "gpu3");
        assert_eq!(first("r[1-2]n[01-18]"), "r1n01");
        assert_eq!(first("gpu[1-4]-ib,x"), "gpu1-ib");
        assert_eq!(first_host(""), None);
        assert_eq!(first_host("gpu[08-11"), None);
    }
}
