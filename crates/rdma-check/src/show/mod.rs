//! For people: the verdict, what was found, and the tables that one would ask for next.

mod grid;
mod tables;

use linkproof_common::finding::{Finding, Severity};
use linkproof_common::node::Node;

use crate::View;
use crate::document::Document;

/// Lines are wrapped here.
const WIDTH: usize = 118;

/// Where the words of a finding begin.
const INDENT: usize = 11;

/// The whole text.
pub fn text(document: &Document) -> String {
    let mut parts = vec![heading(document), findings(&document.findings)];
    if let Some(node) = &document.node {
        parts.extend(tables_of(node, document.view));
        parts.push(unseen(node));
    }
    parts.retain(|part| !part.is_empty());
    format!("{}\n", parts.join("\n\n"))
}

fn heading(document: &Document) -> String {
    let mut what = format!("{} {}", document.tool, document.version);
    if let Some(node) = &document.node {
        let system = &node.system;
        let numa = system.numa_nodes.filter(|&nodes| nodes > 1).map(|nodes| format!("{nodes} NUMA nodes"));
        let known = [
            system.name.clone(),
            system.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
            system.cpu.clone(),
            numa,
            system.virtual_machine.then(|| "a virtual machine".to_owned()),
            system.container.as_ref().map(|kind| format!("in a container ({kind})")),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        what = format!(
            "{what}: {}",
            if known.is_empty() { "an unknown machine".to_owned() } else { known.join(", ") }
        );
    }
    let root = document.root.as_ref().map_or(String::new(), |root| format!("\n Recorded in  : {root}"));
    let run = document.run.as_ref().map_or(String::new(), |run| format!("\n Run          : {}", run.command));
    format!("{what}{root}{run}\n Verdict      : {}", verdict(document))
}

fn verdict(document: &Document) -> String {
    let count = |severity| document.findings.iter().filter(|finding| finding.severity == severity).count();
    let several = |count: usize, word: &str| {
        (count > 0).then(|| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
    };
    let rest = [several(count(Severity::Warning), "warning"), several(count(Severity::Note), "note")];
    let rest = rest.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match (count(Severity::Unfit), rest.as_str()) {
        (0, "") => "fit".to_owned(),
        (0, rest) => format!("fit, with {rest}"),
        (unfit, "") => format!("NOT FIT: {} a run", stops(unfit)),
        (unfit, rest) => format!("NOT FIT: {} a run; {rest}", stops(unfit)),
    }
}

fn stops(count: usize) -> String {
    if count == 1 { "1 finding stops".to_owned() } else { format!("{count} findings stop") }
}

fn findings(findings: &[Finding]) -> String {
    let (good, bad): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.severity == Severity::Ok);
    let bad = bad.into_iter().map(trouble);
    let good: Vec<String> = good.into_iter().map(fine).collect();
    bad.chain((!good.is_empty()).then(|| good.join("\n"))).collect::<Vec<_>>().join("\n\n")
}

fn title(finding: &Finding) -> String {
    let on = if finding.on.is_empty() { String::new() } else { format!(": {}", finding.on.join(", ")) };
    let severity = finding.severity.name();
    let severity =
        if finding.severity == Severity::Unfit { severity.to_uppercase() } else { severity.to_owned() };
    format!(" {severity:<9} {}{on}", finding.code.name())
}

fn trouble(finding: &Finding) -> String {
    let mut lines = vec![wrapped("", &title(finding), INDENT)];
    lines.push(wrapped("seen   : ", &finding.seen, INDENT));
    lines.push(wrapped("effect : ", &finding.effect, INDENT));
    if let Some(remedy) = &finding.remedy {
        lines.push(wrapped("remedy : ", remedy, INDENT));
    }
    lines.push(format!("{:INDENT$}more   : docs/troubleshooting.md#{}", "", finding.section));
    lines.join("\n")
}

fn fine(finding: &Finding) -> String {
    wrapped("", &format!("{}: {}", title(finding), finding.seen), INDENT)
}

/// `text` behind `label`, in lines that end before [`WIDTH`]; all but a title are indented.
fn wrapped(label: &str, text: &str, indent: usize) -> String {
    let first = if label.is_empty() { String::new() } else { format!("{:indent$}{label}", "") };
    let rest = " ".repeat(indent + label.len());
    let (mut lines, mut line) = (Vec::new(), first);
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.join("\n")
}

fn tables_of(node: &Node, view: View) -> Vec<String> {
    let mut parts = Vec::new();
    if view == View::All {
        parts.push(tables::devices(node));
        parts.push(tables::interfaces(node));
    }
    if view.shows(View::Gids) {
        parts.push(tables::gids(node));
    }
    if view.shows(View::Topo) {
        parts.push(tables::links(node));
        parts.push(tables::matrix(node));
        parts.push(tables::gpus(node));
    }
    if view.shows(View::Limits) {
        parts.push(tables::limits(node));
    }
    if view == View::All {
        parts.push(tables::nccl(node));
    }
    if view.shows(View::Counters) {
        parts.push(tables::counters(node));
    }
    parts
}

fn unseen(node: &Node) -> String {
    if node.unseen.is_empty() {
        return String::new();
    }
    let line = |unseen: &linkproof_common::node::Unseen| {
        wrapped("- ", &format!("{}: {}", unseen.what, unseen.why), 1)
    };
    format!("Not seen\n{}", node.unseen.iter().map(line).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests;
