//! Help is documentation: a change to it is a change to be looked at.

use linkproof_tests::Tool;

fn text_of(option: &str) -> String {
    text_of_tool("write-bw", option)
}

fn text_of_tool(tool: &str, option: &str) -> String {
    let help = Tool::new(tool).args(option).run();
    help.exits(0);
    assert_eq!(help.stderr, "");
    help.stdout.clone()
}

#[test]
fn short_help_of_write_bw() {
    insta::assert_snapshot!(text_of("-h"));
}

#[test]
fn long_help_of_write_bw() {
    insta::assert_snapshot!(text_of("--help"));
}

#[test]
fn long_help_of_write_lat() {
    insta::assert_snapshot!(text_of_tool("write-lat", "--help"));
}

#[test]
fn help_wins_over_other_options() {
    assert_eq!(text_of("-d mlx5_0 --transport tcp host --help"), text_of("--help"));
}

#[test]
fn the_version_is_the_workspaces() {
    let expected = format!("write-bw {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text_of("-V"), expected);
    assert_eq!(text_of("--version"), expected);
}
