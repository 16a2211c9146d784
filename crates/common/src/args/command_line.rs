//! From a command line to values: what clap makes of it, and refusals in the users' own words.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Parser};

use super::perftest::way_out;
use crate::error::{Error, ErrorKind, Result};

/// A parsed command line, and which options were on it.
pub struct Parsed<A> {
    /// The values, defaults filled in.
    pub args: A,
    /// The identifiers of the options that were given.
    pub given: Vec<String>,
}

/// What a command line asks for when it asks for no run: the text of `--help` or `--version`.
pub enum Parse<A> {
    /// A run.
    Run(Parsed<A>),
    /// A text for stdout.
    Text(String),
}

/// Parses `argv` (with the program's name first).
///
/// # Errors
/// [`ErrorKind::Usage`] with clap's own words and its suggestion, if it has one.
pub fn parse<A: Parser>(argv: impl IntoIterator<Item = OsString>) -> Result<Parse<A>> {
    parse_knowing(argv, way_out)
}

/// The same for a tool whose users have other habits: `way_out` says what to do instead of an option (as it was typed,
/// with `-` for `_`) that the tool does not know.
///
/// # Errors
/// As [`parse`].
pub fn parse_knowing<A: Parser>(
    argv: impl IntoIterator<Item = OsString>,
    way_out: fn(&str) -> Option<&'static str>,
) -> Result<Parse<A>> {
    let argv =
        argv.into_iter().enumerate().map(|(index, arg)| if index == 0 { arg } else { with_dashes(arg) });
    match A::command().try_get_matches_from(argv) {
        Ok(matches) => {
            let args = A::from_arg_matches(&matches).map_err(|error| usage_error(&error, way_out))?;
            Ok(Parse::Run(Parsed { args, given: given_on_command_line(&matches) }))
        }
        Err(error) if !error.use_stderr() => Ok(Parse::Text(error.render().to_string())),
        Err(error) => Err(usage_error(&error, way_out)),
    }
}

fn unknown_option(error: &clap::Error) -> Option<&str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind::UnknownArgument};
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == UnknownArgument => Some(option),
        _ => None,
    }
}

/// perftest spells long options with `_` as often as with `-`; both are taken.
fn with_dashes(arg: OsString) -> OsString {
    let Some(text) = arg.to_str().filter(|text| text.starts_with("--")) else { return arg };
    let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
    format!("{}{value}", name.replace('_', "-")).into()
}

fn given_on_command_line(matches: &ArgMatches) -> Vec<String> {
    let given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    // clap lists argument groups among the ids; they have no value of their own.
    let is_argument =
        |id: &&clap::Id| matches.try_contains_id(id.as_str()).is_ok() && !id.as_str().ends_with("Args");
    matches.ids().filter(is_argument).filter(given).map(|id| id.as_str().to_owned()).collect()
}

fn usage_error(error: &clap::Error, way_out: fn(&str) -> Option<&'static str>) -> Error {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let mut usage = Error::new(ErrorKind::Usage, what);
    let mut hint = None;
    for line in lines {
        // clap takes an unknown option for a value that needs quoting; perftest's users type options it does not know.
        if let Some(tip) = line.strip_prefix("tip: ").filter(|tip| !tip.starts_with("to pass ")) {
            hint = Some(tip.to_owned());
        } else if let Some(values) = line.strip_prefix("[possible values: ") {
            usage = usage.fact("possible values", values.trim_end_matches(']'));
        }
    }
    let way_out = unknown_option(error).and_then(way_out).map(str::to_owned);
    usage.hint(way_out.or(hint).unwrap_or_else(|| match error.kind() {
        clap::error::ErrorKind::UnknownArgument => {
            "--help lists every option, docs/compatibility.md what other tools' options are here".to_owned()
        }
        _ => "--help lists every option with its range".to_owned(),
    }))
}

/// The options of a group, of those that were given by their identifiers: a server refuses a client's.
pub fn given_of<G: Args>(given: &[String]) -> Vec<String> {
    let command = G::augment_args(clap::Command::new(""));
    let of_group = |id: &&String| command.get_arguments().any(|arg| arg.get_id() == id.as_str());
    given.iter().filter(of_group).map(|id| format!("--{}", id.replace('_', "-"))).collect()
}
