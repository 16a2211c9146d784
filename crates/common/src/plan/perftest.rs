//! What of a plan can be carried out with a perftest at the other end, which can't be told one.

use super::{GpuPathRequest, GpuPlan, Plan, Role, RoundLength, Traffic, Transport};
use crate::args::all_sizes;
use crate::error::{Error, ErrorKind, Result};

impl Plan {
    /// The same plan for `role` with a perftest at the other end. A perftest that only takes writes leaves this end everything.
    /// One that writes itself does so once for each size, without a warm-up: there are no rounds then.
    ///
    /// # Errors
    /// [`ErrorKind::PerftestPeer`] for what a perftest can't do.
    pub fn for_perftest(self, role: Role) -> Result<Self> {
        if self.transport == Transport::Tcp {
            return cannot(
                "it measures over RDMA only",
                "leave --transport tcp out, or start this tool there",
            );
        }
        if self.validate {
            return cannot(
                "it can't check the data, nor send what this end could check",
                "leave --validate out, or start this tool there",
            );
        }
        if self.working_set_bytes.is_some() {
            return cannot(
                "it takes writes in a page, or larger ones in one place",
                "leave --working-set out, or start this tool there",
            );
        }
        let gpu = self.gpu_for_perftest(role)?;
        if self.traffic == Traffic::Unidirectional {
            return Ok(Self { gpu, ..self });
        }
        let writes = "where both ends write";
        if self.is_until_stopped() {
            return cannot(
                &format!("{writes} it can't be told when to stop"),
                "leave --run-infinitely out, or start this tool there",
            );
        }
        if self.sizes_bytes.len() > 1 && self.sizes_bytes != all_sizes() {
            return cannot(
                &format!("{writes} it has one size, or the 23 of --all"),
                "give one --size, or --all, on both ends",
            );
        }
        let round_length = match self.round_length {
            RoundLength::Seconds(_) if self.sizes_bytes.len() > 1 => {
                return cannot("it takes no -D with --all", "give -n instead of -D on both ends");
            }
            RoundLength::Iterations(..2) if self.traffic == Traffic::PingPong => {
                return cannot("its first round trip is no sample", "give -n 2 or more on both ends");
            }
            RoundLength::Seconds(seconds) => RoundLength::Seconds(seconds * f64::from(self.rounds)),
            other => other,
        };
        Ok(Self { round_length, rounds: 1, warmup_iterations: 0, gpu, ..self })
    }

    /// This end's GPU memory: what the other end has is its own affair, as perftest's --use_cuda is each end's.
    fn gpu_for_perftest(&self, role: Role) -> Result<Option<GpuPlan>> {
        let Some(gpu) = &self.gpu else { return Ok(None) };
        if self.traffic == Traffic::PingPong {
            return cannot(
                "processors can't look for messages in GPU memory, and it tells of none in another way",
                "leave --use-cuda and --memory out, or start this tool there",
            );
        }
        if gpu.allow_staged || gpu.path == GpuPathRequest::Staged {
            return cannot(
                "messages that go through host memory have to be counted for this end, which it doesn't",
                "leave --cuda-path staged and --allow-staged out, or start this tool there",
            );
        }
        let ours = self.gpu_of(role).cloned();
        if ours.is_none() {
            return cannot(
                "its memory is its own affair",
                "leave --peer-memory out, and give perftest its own --use_cuda",
            );
        }
        let (client, server) = match role {
            Role::Client => (ours, None),
            Role::Server => (None, ours),
        };
        Ok(Some(GpuPlan { client, server, ..gpu.clone() }))
    }

    /// The options that a perftest at the end opposite `role` needs for this plan, or must not have, and does not tell of.
    pub fn must_match(&self, role: Role) -> Vec<String> {
        let mut options = Vec::new();
        options.push(match self.sizes_bytes.as_slice() {
            [size] if self.traffic == Traffic::Unidirectional && role == Role::Server => {
                format!("-s {size}, or less, or -a")
            }
            [size] if self.traffic == Traffic::Unidirectional => format!("-s {size}, or more, or -a"),
            [size] => format!("-s {size}"),
            _ if self.traffic == Traffic::Unidirectional => format!("-s {}, or more, or -a", self.largest()),
            _ => "-a".to_owned(),
        });
        if self.traffic != Traffic::Unidirectional {
            options.push(match self.round_length {
                RoundLength::Iterations(iters) => format!("-n {iters}"),
                RoundLength::Seconds(seconds) => format!("-D {seconds}"),
                RoundLength::UntilStopped => "--run_infinitely".to_owned(),
            });
        }
        match self.traffic {
            Traffic::PingPong => {}
            Traffic::Unidirectional => options.push("no -b".to_owned()),
            Traffic::Bidirectional => options.push("-b".to_owned()),
        }
        let learns = self.traffic == Traffic::Unidirectional && role == Role::Server;
        if self.traffic != Traffic::PingPong && !learns {
            options.push(format!("-q {}", self.qps));
        }
        options.push("-c RC".to_owned());
        options.push("neither -R nor -z".to_owned());
        options
    }
}

fn cannot<T>(what: &str, hint: &str) -> Result<T> {
    Err(Error::new(ErrorKind::PerftestPeer, format!("the other end is perftest's: {what}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::cuda::GpuName;

    fn refused(plan: Plan) -> String {
        let error = plan.for_perftest(Role::Client).unwrap_err();
        assert_eq!(error.kind, ErrorKind::PerftestPeer);
        assert!(error.hint.is_some());
        error.what
    }

    #[test]
    fn a_perftest_that_only_takes_writes_leaves_the_plan_alone() {
        let sizes = Plan { sizes_bytes: vec![8, 4096], ..plan() };
        assert_eq!(sizes.clone().for_perftest(Role::Client).unwrap(), sizes);
        let endless = Plan { round_length: RoundLength::UntilStopped, ..plan() };
        assert!(endless.for_perftest(Role::Client).is_ok());
    }

    #[test]
    fn a_perftest_that_writes_has_one_round_and_no_warm_up() {
        let both =
            Plan { traffic: Traffic::Bidirectional, round_length: RoundLength::Seconds(2.0), ..plan() };
        for traffic in [Traffic::Bidirectional, Traffic::PingPong] {
            let plan = Plan { traffic, ..both.clone() }.for_perftest(Role::Client).unwrap();
            assert_eq!((plan.rounds, plan.warmup_iterations), (1, 0));
            assert_eq!(plan.round_length, RoundLength::Seconds(6.0));
            assert!(plan.check().is_ok());
        }
    }

    #[test]
    fn gpu_memory_is_this_ends_alone() {
        let gpu = Some(GpuName::Ordinal(1));
        let path = GpuPathRequest::Auto;
        let both = GpuPlan { client: gpu.clone(), server: gpu.clone(), path, allow_staged: false };
        for traffic in [Traffic::Unidirectional, Traffic::Bidirectional] {
            let plan = Plan { gpu: Some(both.clone()), traffic, ..plan() };
            let ours = |role| plan.clone().for_perftest(role).unwrap().gpu.unwrap();
            assert_eq!(ours(Role::Client), GpuPlan { server: None, ..both.clone() });
            assert_eq!(ours(Role::Server), GpuPlan { client: None, ..both.clone() });
        }
    }

    #[test]
    fn what_perftest_cannot_do_is_refused() {
        let both = Plan { traffic: Traffic::Bidirectional, ..plan() };
        let turns = Plan { traffic: Traffic::PingPong, ..plan() };
        let by_time = RoundLength::Seconds(1.0);
        assert!(refused(Plan { validate: true, ..plan() }).contains("check the data"));
        assert!(refused(Plan { transport: Transport::Tcp, ..plan() }).contains("RDMA only"));
        let gpu =
            |client, server| GpuPlan { client, server, path: GpuPathRequest::Auto, allow_staged: false };
        let both_gpus = gpu(Some(GpuName::Ordinal(1)), Some(GpuName::Ordinal(1)));
        assert!(
            refused(Plan { gpu: Some(both_gpus.clone()), ..turns.clone() }).contains("look for messages")
        );
        assert!(
            refused(Plan { gpu: Some(gpu(None, both_gpus.server.clone())), ..plan() }).contains("own affair")
        );
        let staged = GpuPlan { allow_staged: true, ..both_gpus.clone() };
        assert!(refused(Plan { gpu: Some(staged), ..plan() }).contains("have to be counted"));
        assert!(refused(Plan { working_set_bytes: Some(1 << 20), ..plan() }).contains("in one place"));
        assert!(refused(Plan { sizes_bytes: vec![8, 16], ..both.clone() }).contains("one size"));
        assert!(refused(Plan { round_length: RoundLength::UntilStopped, ..both.clone() }).contains("stop"));
        assert!(refused(Plan { round_length: by_time, sizes_bytes: all_sizes(), ..both }).contains("-D"));
        let once = RoundLength::Iterations(1);
        assert!(refused(Plan { round_length: once, ..turns }).contains("no sample"));
    }

    #[test]
    fn what_must_match_is_in_perftests_words() {
        let both = Plan { traffic: Traffic::Bidirectional, qps: 4, ..plan() };
        assert_eq!(both.must_match(Role::Client)[..4], ["-s 65536", "-n 100", "-b", "-q 4"]);
        let all = Plan { sizes_bytes: all_sizes(), traffic: Traffic::PingPong, ..plan() };
        assert_eq!(all.must_match(Role::Client)[..2], ["-a", "-n 100"]);
        assert_eq!(plan().must_match(Role::Client)[..2], ["-s 65536, or more, or -a", "no -b"]);
    }
}
