//! Which core each rank of this machine runs on.

use linkproof_common::affinity::{Cores, allowed, one_each};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::host::HostFiles;

/// What `--cores` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// `any`: the scheduler decides.
    Any,
    /// A core for each rank.
    To(Cores),
}

impl Bind {
    /// From the option.
    ///
    /// # Errors
    /// What would have been understood.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if text == "any" { Ok(Self::Any) } else { Cores::parse(text).map(Self::To) }
    }
}

/// A core for each of `n_ranks` ranks of this machine; none where they are not bound: because `any` was asked for, or
/// because there are fewer cores than ranks, which then have to share them in any case.
///
/// # Errors
/// [`ErrorKind::Usage`] where `bind` names fewer cores than there are ranks.
pub fn cores_for(bind: Option<&Bind>, n_ranks: u32, files: &HostFiles) -> Result<Vec<Cores>> {
    match bind {
        Some(Bind::Any) => Ok(Vec::new()),
        Some(Bind::To(cores)) if cores.len() < n_ranks as usize => Err(Error::new(
            ErrorKind::Usage,
            format!("--cores has {} cores, and there are {n_ranks} ranks", cores.len()),
        )
        .hint("each rank needs one of its own; --cores any binds nothing")),
        Some(Bind::To(cores)) => Ok(cores.numbers().iter().map(|core| Cores::of([*core])).collect()),
        None => Ok(one_each(n_ranks as usize, &allowed(), files).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(bind: &str, n_ranks: u32) -> Result<Vec<Cores>> {
        let bind = Bind::parse(bind).unwrap();
        cores_for(Some(&bind), n_ranks, &HostFiles::this_machine())
    }

    #[test]
    fn each_rank_has_its_core_or_none_has() {
        assert_eq!(cores("2-3,7", 3).unwrap(), [2, 3, 7].map(|core| Cores::of([core])));
        assert_eq!(cores("any", 3).unwrap(), []);
        assert!(cores("2-3", 3).unwrap_err().what.contains("--cores has 2 cores, and there are 3 ranks"));
        assert!(Bind::parse("x").is_err());
        assert_eq!(cores_for(None, 100_000, &HostFiles::this_machine()).unwrap(), []);
    }
}
