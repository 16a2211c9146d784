//! What `main` does: from the words of the command line to an exit status.

use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;

use linkproof_common::args::{Parse, parse_knowing};
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::finding::{self, Finding};
use linkproof_common::host::HostFiles;
use linkproof_common::node::Node;
use linkproof_common::report::{JsonTarget, Layout, write_document};

use crate::args::Args;
use crate::document::Document;
use crate::output::{fail, print};
use crate::peer::Peer;
use crate::run::Claim;
use crate::{metrics, show};

/// Parses the command line, looks, and shows what was found.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse_knowing::<Args>(argv.clone(), |_| None) {
        Ok(Parse::Run(parsed)) => run(&parsed.args),
        Ok(Parse::Text(text)) => print(&text).map_or_else(|error| fail(&error), |()| ExitStatus::Good),
        Err(error) => failed(error, JsonTarget::from_unparsed(&argv).as_ref()),
    };
    // A library that has not answered in time is not waited for: its threads end with the process.
    ExitCode::from(status as u8)
}

fn run(args: &Args) -> ExitStatus {
    let json = JsonTarget::from_option(args.output.json.as_ref());
    match look(args) {
        Ok(document) => {
            let metrics =
                args.output.metrics.as_deref().map_or(Ok(()), |path| metrics::write(&document, path));
            let status = show(&document, json.as_ref());
            metrics.map_or_else(|error| fail(&error), |()| status)
        }
        Err(error) => failed(error, json.as_ref()),
    }
}

fn look(args: &Args) -> Result<Document> {
    // A command line that is not understood is told before anything is looked at.
    let claim = args.judgement.run.as_deref().map(Claim::of).transpose()?;
    let files = files(args)?;
    let (node, mut findings) = seen(args, &files);
    let peer = args.judgement.peer.as_deref().map(|host| Peer::ask(host, args.judgement.port)).transpose()?;
    let run = claim.as_ref().map(|claim| {
        let mut run = claim.on(&node, &files);
        if !files.is_recorded() {
            claim.try_gpu_memory(&mut run, &files);
        }
        run
    });
    if let (Some(claim), Some(run)) = (&claim, &run) {
        findings = finding::ranked(claim.findings(run, findings));
    }
    if let Some(peer) = &peer {
        findings = finding::ranked(findings.into_iter().chain(peer.findings(&node)).collect());
    }
    let view = args.view();
    let findings = findings.into_iter().filter(|finding| view.has(finding)).collect();
    let mut document = Document::of(node, findings, view, args.judgement.strict);
    document.peer = peer;
    document.run = run;
    document.root = args.judgement.root.as_ref().map(|root| root.display().to_string());
    Ok(document)
}

fn files(args: &Args) -> Result<HostFiles> {
    match &args.judgement.root {
        None => Ok(HostFiles::this_machine()),
        Some(root) if root.is_dir() => Ok(HostFiles::below(root)),
        Some(root) => Err(Error::new(ErrorKind::Usage, format!("--root: {} is no folder", root.display()))
            .hint("name the folder that has sys and proc in it")),
    }
}

/// One look, or two and what was counted between them.
fn seen(args: &Args, files: &HostFiles) -> (Node, Vec<Finding>) {
    let node = Node::read(files);
    let mut findings = finding::examine(&node);
    let Some(pause) = args.watch() else { return (node, findings) };
    thread::sleep(pause);
    let later = Node::read(files);
    findings.extend(finding::growth(&node, &later, pause));
    (later, finding::ranked(findings))
}

fn show(document: &Document, json: Option<&JsonTarget>) -> ExitStatus {
    let shown = match json {
        Some(JsonTarget::Stdout) => Ok(()),
        _ => print(&show::text(document)),
    };
    let written = json.map_or(Ok(()), |target| write_document(document, target, Layout::Pretty));
    match shown.and(written) {
        Ok(()) => document.exit_status(),
        Err(error) => fail(&error),
    }
}

/// Shows `error`, and writes it as a document where JSON was asked for: whoever did reads stdout.
fn failed(error: Error, json: Option<&JsonTarget>) -> ExitStatus {
    let status = fail(&error);
    let document = Document::failed(error);
    match json.map_or(Ok(()), |target| write_document(&document, target, Layout::Pretty)) {
        Ok(()) => status,
        Err(error) => fail(&error),
    }
}
