use linkproof_common::finding::examine;
use linkproof_common::host::HostFiles;
use linkproof_common::node::fixture::{self, Tree};

use super::*;

/// The text of a node, without where it was recorded.
fn shown(tree: &Tree, view: View) -> String {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    tree.write_to(folder.path()).unwrap();
    let node = Node::read(&HostFiles::below(folder.path()));
    let findings = examine(&node).into_iter().filter(|finding| view.has(finding)).collect();
    let mut document = Document::of(node, findings, view, false);
    document.version = "0.0.0".to_owned();
    text(&document).replace(&folder.path().display().to_string(), "TREE")
}

#[test]
fn a_large_machine_at_a_glance() {
    insta::assert_snapshot!(shown(&fixture::eight_by_eight(), View::All));
}

#[test]
fn gids_with_the_choice() {
    insta::assert_snapshot!(shown(&fixture::roce(), View::Gids));
}

#[test]
fn a_pod_without_its_node() {
    insta::assert_snapshot!(shown(&fixture::pod_without_node(), View::All));
}

#[test]
fn a_slow_link() {
    insta::assert_snapshot!(shown(&fixture::degraded_link(), View::Topo));
}

#[test]
fn a_machine_without_anything() {
    insta::assert_snapshot!(shown(&fixture::bare(), View::All));
}

#[test]
fn lines_are_wrapped_and_nothing_is_lost() {
    let words = "word ".repeat(60);
    let text = wrapped("seen : ", words.trim(), 4);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert_eq!(text.matches("word").count(), 60);
    assert!(text.lines().skip(1).all(|line| line.starts_with("           word")), "{text}");
}
