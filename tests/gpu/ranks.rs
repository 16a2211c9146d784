//! Ranks as processes of their own, all on the first GPU.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use linkproof_tests::{Finished, Launcher, Running, Tool, skip};

/// NCCL takes seconds to come together, more where its ranks share a GPU.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Whether the tests may use a GPU; says that `test` is skipped where not.
pub(crate) fn has_gpu(test: &str) -> bool {
    let has = std::env::var_os("LINKPROOF_GPU").is_some();
    if !has {
        skip(test, "LINKPROOF_GPU is not set: no GPU to test with");
    }
    has
}

/// Ranks that run.
pub(crate) struct Ranks(Vec<Running>);

/// How ranks are started.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// How many.
    pub(crate) n: u32,
    /// Their options.
    pub(crate) line: &'a str,
    /// What they find in the environment beside what a launcher says.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl<'a> Start<'a> {
    /// `n` ranks with the options `line`.
    pub(crate) fn new(n: u32, line: &'a str) -> Self {
        Self { n, line, environment: &[] }
    }

    /// The same with more in the environment.
    pub(crate) fn with(self, environment: &'a [(&'a str, &'a str)]) -> Self {
        Self { environment, ..self }
    }

    /// Starts them.
    pub(crate) fn start(self) -> Ranks {
        let on_the_gpu = |tool: Tool, _| {
            let tool = tool.env("CUDA_VISIBLE_DEVICES", "0");
            self.environment.iter().fold(tool, |tool, (name, value)| tool.env(name, *value))
        };
        Ranks(
            linkproof_tests::Ranks::by(Launcher::Torchrun, self.n)
                .over("nccl")
                .start_with(self.line, on_the_gpu),
        )
    }

    /// Runs them to their end: rank 0's.
    pub(crate) fn run(self) -> Finished {
        self.start().finish().swap_remove(0)
    }
}

impl Ranks {
    /// Waits for all, rank 0 first.
    pub(crate) fn finish(self) -> Vec<Finished> {
        self.0.into_iter().map(|rank| rank.finish_within(LIMIT)).collect()
    }

    /// Waits for rank 0; the others are ended.
    pub(crate) fn finish_first(mut self) -> Finished {
        self.0.swap_remove(0).finish_within(LIMIT)
    }

    /// One of them.
    pub(crate) fn rank(&self, rank: usize) -> &Running {
        &self.0[rank]
    }

    /// Waits until NCCL's log of `rank` has `words`.
    pub(crate) fn wait_for_log(&self, rank: usize, words: &str) {
        let name = format!("coll-perf-nccl-{}.log", self.rank(rank).pid());
        let path: PathBuf = std::env::temp_dir().join(name);
        let begin = Instant::now();
        while !std::fs::read_to_string(&path).is_ok_and(|log| log.contains(words)) {
            assert!(begin.elapsed() < LIMIT, "{} does not come to have \"{words}\"", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
