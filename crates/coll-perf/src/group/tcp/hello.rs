//! Who a rank is and what it was asked to do, and whether that fits with the others.

use linkproof_common::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::launch::Launch;
use crate::plan::Plan;

/// A rank's greeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: String,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) host: String,
    pub(super) pid: u32,
    /// What it was asked to measure; a matrix by its sum of digits only.
    pub(super) plan: Value,
}

impl Hello {
    /// This process's.
    pub(super) fn of(launch: &Launch, plan: &Plan) -> Self {
        let mut plan = serde_json::to_value(plan).unwrap_or_default();
        if let Some(matrix) = plan.get_mut("matrix_bytes") {
            *matrix = Value::from(digest(&matrix.to_string()));
        }
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: launch.rank,
            n_ranks: launch.n_ranks,
            host: nix::unistd::gethostname()
                .map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned()),
            pid: std::process::id(),
            plan,
        }
    }

    /// In words: `rank 1 (host b, pid 77)`.
    pub(super) fn name(&self) -> String {
        format!("rank {} (host {}, pid {})", self.rank, self.host, self.pid)
    }

    /// Why `other` can't take part in the run of this one, which is rank 0.
    pub(super) fn refusal(&self, other: &Self, same_rank: Option<&Self>) -> Option<Error> {
        let usage = |what: String| Error::new(ErrorKind::Usage, what);
        if other.version != self.version {
            let what =
                format!("{} is version {}, and rank 0 is {}", other.name(), other.version, self.version);
            return Some(Error::new(ErrorKind::PeerVersion, what).hint("install one version on all hosts"));
        }
        if other.n_ranks != self.n_ranks {
            let what = format!(
                "{} was told of {} ranks, and rank 0 of {}",
                other.name(),
                other.n_ranks,
                self.n_ranks
            );
            return Some(usage(what).hint("start all with one launcher, or see who else meets at this port"));
        }
        if other.rank == 0 || other.rank >= self.n_ranks {
            let what = format!(
                "{} came to rank 0, host {} with pid {}, of {} ranks",
                other.name(),
                self.host,
                self.pid,
                self.n_ranks
            );
            return Some(usage(what).hint("every rank from 0 on must be there once"));
        }
        if let Some(first) = same_rank {
            let what = format!(
                "rank {} came twice: from host {} with pid {} and from host {} with pid {}",
                other.rank, first.host, first.pid, other.host, other.pid
            );
            return Some(
                usage(what).hint("every rank must be there once; another run may meet at this port"),
            );
        }
        let difference = first_difference(&self.plan, &other.plan)?;
        Some(
            usage(format!("{} was started with other options than rank 0", other.name()))
                .fact("differs", difference)
                .hint("give all ranks the same command line"),
        )
    }
}

fn first_difference(ours: &Value, theirs: &Value) -> Option<String> {
    let (Some(a), Some(b)) = (ours.as_object(), theirs.as_object()) else {
        return (ours != theirs).then(|| "the plan".to_owned());
    };
    let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    let show = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    let differs = |key: &&String| a.get(*key) != b.get(*key);
    keys.into_iter()
        .find(differs)
        .map(|key| format!("{key}: {} at rank 0, {} there", show(a.get(key)), show(b.get(key))))
}

/// A number that almost surely differs where the text does (FNV-1a).
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    fn hello(rank: u32) -> Hello {
        let launch =
            Launch { rank, n_ranks: 3, local_rank: None, by: "test".into(), host: "h".into(), port: 1 };
        Hello::of(&launch, &plan(&["all_reduce"]))
    }

    fn refusal(change: impl FnOnce(&mut Hello), same_rank: Option<&Hello>) -> String {
        let mut other = hello(1);
        change(&mut other);
        let error = hello(0).refusal(&other, same_rank).unwrap();
        format!("{} {}", error.what, error.facts.iter().map(|fact| fact.value.as_str()).collect::<String>())
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(hello(0).refusal(&hello(2), None), None);
        assert!(refusal(|it| it.version = "9.9".into(), None).contains("is version 9.9"));
        assert!(refusal(|it| it.n_ranks = 4, None).contains("was told of 4 ranks, and rank 0 of 3"));
        assert!(refusal(|it| it.rank = 0, None).contains("came to rank 0"));
        assert!(refusal(|it| it.rank = 3, None).contains("of 3 ranks"));
        assert!(refusal(|_| {}, Some(&hello(1))).contains("rank 1 came twice"));
        let text = refusal(|it| it.plan["iterations"] = 30.into(), None);
        assert!(
            text.contains("other options") && text.contains("iterations: 4 at rank 0, 30 there"),
            "{text}"
        );
    }

    #[test]
    fn a_matrix_is_compared_by_its_digest() {
        let of = |byte: u64| {
            let mut plan = plan(&["alltoallv"]);
            plan.matrix_bytes = Some(vec![vec![byte; 100]; 100]);
            let launch =
                Launch { rank: 1, n_ranks: 3, local_rank: None, by: "t".into(), host: "h".into(), port: 1 };
            Hello::of(&launch, &plan)
        };
        assert_ne!(of(1).plan, of(2).plan);
        assert!(of(1).plan.to_string().len() < 2000);
    }
}
