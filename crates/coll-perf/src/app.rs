//! What `main` does: from the words of the command line to an exit status.
#![allow(clippy::print_stdout, reason = "the texts of --help and --version go to stdout")]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use linkproof_common::args::{Parse, parse_knowing};
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::finding::explain;
use linkproof_common::host::HostFiles;
use linkproof_common::interrupt;
use linkproof_common::report::JsonTarget;

use crate::args::{Args, way_out};
use crate::arms;
use crate::backend::Carrier;
use crate::backend::nccl::{self, Witness};
use crate::cores::cores_for;
use crate::launch::Launch;
use crate::plan::{Plan, Point, Transport};
use crate::processes;
use crate::report::{Document, Output, Progress, RankHost, RawSamples};
use crate::run::{Measured, Observer, Silent};
use crate::summary::RankLog;
use crate::threads::{self, Hands};

/// Parses the command line, runs, and shows what came of it.
pub fn main() -> ExitCode {
    interrupt::install();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse_knowing::<Args>(argv.clone(), way_out) {
        Ok(Parse::Run(parsed)) if !parsed.args.arm.is_empty() => arms::run(&parsed.args, &argv),
        Ok(Parse::Run(parsed)) => run(&parsed.args),
        Ok(Parse::Text(text)) => print_text(&text),
        Err(error) => fail(error, &Output::for_unparsed(&argv)),
    };
    ExitCode::from(status as u8)
}

/// A reader that has seen enough and closed the pipe is no failure.
fn print_text(text: &str) -> ExitStatus {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitStatus::Good
}

fn fail(error: Error, output: &Output) -> ExitStatus {
    let mut document = Document::begin();
    document.conclude(Some(error));
    output.show(&document)
}

fn run(args: &Args) -> ExitStatus {
    match args.launch() {
        Ok(launch) if launch.as_ref().is_some_and(|launch| launch.rank > 0) => follow(args, launch.as_ref()),
        Ok(launch) => lead(args, launch.as_ref()),
        Err(error) => fail(error, &output(args)),
    }
}

fn output(args: &Args) -> Output {
    Output::new(JsonTarget::from_option(args.json.as_ref()), args.verbose)
}

/// Rank 0, which shows the result; or all ranks, where they are threads.
fn lead(args: &Args, launch: Option<&Launch>) -> ExitStatus {
    let output = output(args);
    let mut record = Record { document: Document::begin(), progress: Progress::default(), raw: None };
    let result = measure(args, launch, &mut record);
    record.progress.end();
    let written = record.raw.take().map_or(Ok(()), RawSamples::finish);
    record.document.conclude(result.err().or(written.err()));
    output.show(&record.document)
}

fn measure(args: &Args, launch: Option<&Launch>, record: &mut Record) -> Result<()> {
    let plan = args.plan_for(launch)?;
    record.document.plan = Some(plan.clone());
    record.raw = args.raw_samples.as_deref().map(RawSamples::create).transpose()?;
    let hands = hands(args, &plan, launch)?;
    match launch {
        Some(launch) => processes::run(launch, &plan, &hands, record),
        None => threads::run(&plan, &hands, record).map_err(|error| explained(error, &plan)),
    }
}

/// With what of this machine may explain it, where ranks that are threads have used an adapter or GPUs: they wait for each other
/// without any network.
fn explained(error: Error, plan: &Plan) -> Error {
    let is_between_threads = matches!(plan.transport, Transport::Shm | Transport::Tcp)
        || matches!(error.kind, ErrorKind::PeerTimeout | ErrorKind::PeerLost);
    if is_between_threads { error } else { explain(error, &HostFiles::this_machine()) }
}

/// How this process goes about it. Processes are bound by their launcher.
fn hands(args: &Args, plan: &Plan, launch: Option<&Launch>) -> Result<Hands> {
    let cores = match launch {
        Some(_) => Vec::new(),
        None => cores_for(args.cores.as_ref(), plan.n_ranks, &HostFiles::this_machine())?,
    };
    let gpu = plan.transport == Transport::Gpu;
    let nccl_log = if gpu { nccl::prepare(launch.map(|it| it.rank), plan.shared_gpu) } else { None };
    let nccl = nccl::Choice {
        library: args.nccl_lib.clone(),
        shared_gpu: plan.shared_gpu,
        graph_launches: plan.graph_launches,
        registered: plan.registered,
    };
    let port = args.port.wish();
    Ok(Hands { machine: RankHost::this_machine(), cores, port, fault: args.inject_fault, nccl, nccl_log })
}

/// Any other process: it has no result of its own to show, and says why it ended if that was too soon.
fn follow(args: &Args, launch: Option<&Launch>) -> ExitStatus {
    let run = |launch: &Launch| {
        let plan = args.plan_for(Some(launch))?;
        let hands = hands(args, &plan, Some(launch))?;
        processes::run(launch, &plan, &hands, &mut Silent)
    };
    match launch.map_or(Ok(()), run) {
        Ok(()) => ExitStatus::Good,
        Err(error) => {
            output(args).say_failure(&error);
            error.exit_status()
        }
    }
}

/// Rank 0's notes.
struct Record {
    document: Document,
    progress: Progress,
    raw: Option<RawSamples>,
}

impl Observer for Record {
    fn met(&mut self, ranks: &[RankHost], carrier: &Carrier) {
        self.document.hosts = ranks.to_vec();
        self.document.backend = Some(carrier.clone());
    }

    fn begins(&mut self, point: &Point, index: usize, of: usize) {
        self.progress.begins(point, index, of);
    }

    fn logs(&mut self, point: &Point, round: u32, logs: &[RankLog]) {
        if let Some(raw) = self.raw.as_mut() {
            raw.add(point, round, logs);
        }
    }

    fn witnessed(&mut self, witness: Witness) {
        self.document.evidence = vec![witness];
    }

    fn measured(&mut self, measured: Measured) {
        self.document.add(&measured);
    }
}
