//! The schemas of what the tools write, `schema/*.json`: the result document, the line of an interval, a comparison, what
//! was imported, what came of arms, and a look at a node.

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

/// The schema of the result document.
///
/// # Panics
/// Where it isn't JSON.
pub fn document() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/result.v1.json")))
}

/// The schema of an interval's line.
///
/// # Panics
/// Where it isn't JSON.
pub fn interval() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/interval.v1.json")))
}

/// The schema of a comparison.
///
/// # Panics
/// Where it isn't JSON.
pub fn of_comparison() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/comparison.v1.json")))
}

/// The schema of what was imported.
///
/// # Panics
/// Where it isn't JSON.
pub fn of_recording() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/recording.v1.json")))
}

/// The schema of arms.
///
/// # Panics
/// Where it isn't JSON.
pub fn of_arms() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/arms.v1.json")))
}

/// The schema of a look at a node.
///
/// # Panics
/// Where it isn't JSON.
pub fn of_check() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| read(include_str!("../../schema/check.v1.json")))
}

/// Everything that is wrong with a look at a node.
pub fn check_errors(value: &Value) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    errors_by(VALIDATOR.get_or_init(|| validator(of_check())), value)
}

/// Parses `text`, which is one valid look at a node and nothing else.
///
/// # Panics
/// Where it isn't.
pub fn check(text: &str) -> Value {
    let value = one_value(text);
    let errors = check_errors(&value);
    assert!(
        errors.is_empty(),
        "the document does not follow the schema:\n  {}\n{value:#}",
        errors.join("\n  ")
    );
    value
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("the schema is JSON")
}

fn validator(of: &Value) -> Validator {
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(of)
        .expect("the schema is a JSON Schema")
}

fn errors_by(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Everything that is wrong with a result document, each with its place; empty where it is valid.
pub fn errors(value: &Value) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    errors_by(VALIDATOR.get_or_init(|| validator(document())), value)
}

/// The same for an interval's line.
pub fn interval_errors(value: &Value) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    errors_by(VALIDATOR.get_or_init(|| validator(interval())), value)
}

/// Checks that `value` is a valid result document.
///
/// # Panics
/// Where it isn't, with everything that is wrong.
pub fn validate(value: &Value) {
    let errors = errors(value);
    assert!(
        errors.is_empty(),
        "the document does not follow the schema:\n  {}\n{value:#}",
        errors.join("\n  ")
    );
}

/// Parses `text`, which is one valid result document and nothing else.
///
/// # Panics
/// Where it isn't.
pub fn parse(text: &str) -> Value {
    let value = one_value(text);
    validate(&value);
    value
}

/// Parses `text`, which is one valid comparison and nothing else.
///
/// # Panics
/// Where it isn't.
pub fn comparison(text: &str) -> Value {
    let value = one_value(text);
    validate_comparison(&value);
    value
}

/// Parses `text`, whose lines are valid recordings and nothing else.
///
/// # Panics
/// Where they aren't.
pub fn recordings(text: &str) -> Vec<Value> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| validator(of_recording()));
    let valid = |line: &str| {
        let value = one_value(line);
        let errors = errors_by(validator, &value);
        assert!(errors.is_empty(), "no recording:\n  {}\n{value:#}", errors.join("\n  "));
        value
    };
    text.lines().map(valid).collect()
}

/// Parses `text`, which is one valid document of what `perf-compare` does besides comparing arms, and nothing else.
///
/// # Panics
/// Where it isn't.
pub fn of_perf_compare(text: &str) -> Value {
    let value = one_value(text);
    let schema = match value["schema"].as_str().unwrap_or_default() {
        "linkproof/fit.v1" => include_str!("../../schema/fit.v1.json"),
        "linkproof/steps.v1" => include_str!("../../schema/steps.v1.json"),
        "linkproof/value.v1" => include_str!("../../schema/value.v1.json"),
        "linkproof/fleet.v1" => include_str!("../../schema/fleet.v1.json"),
        "linkproof/baseline.v1" => include_str!("../../schema/baseline.v1.json"),
        "linkproof/baseline-check.v1" => include_str!("../../schema/baseline-check.v1.json"),
        other => panic!("a schema called {other}:\n{text}"),
    };
    let errors = errors_by(&validator(&read(schema)), &value);
    assert!(errors.is_empty(), "no such document:\n  {}\n{value:#}", errors.join("\n  "));
    value
}

/// Parses `text`, which is what came of arms and nothing else, all documents in it valid.
///
/// # Panics
/// Where it isn't.
pub fn arms(text: &str) -> Value {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let value = one_value(text);
    let errors = errors_by(VALIDATOR.get_or_init(|| validator(of_arms())), &value);
    assert!(errors.is_empty(), "no arms:\n  {}\n{value:#}", errors.join("\n  "));
    let runs = |arm: &Value| arm["runs"].as_array().cloned().unwrap_or_default();
    value["arms"].as_array().into_iter().flatten().flat_map(runs).for_each(|run| validate(&run));
    value.get("comparison").iter().for_each(|comparison| validate_comparison(comparison));
    value
}

fn one_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not one JSON value: {error}:\n{text}"))
}

fn validate_comparison(value: &Value) {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let errors = errors_by(VALIDATOR.get_or_init(|| validator(of_comparison())), value);
    assert!(errors.is_empty(), "no comparison:\n  {}\n{value:#}", errors.join("\n  "));
}

/// Parses `text`, which is JSON Lines: valid intervals and, last, a valid result document.
///
/// # Panics
/// Where it isn't.
pub fn parse_lines(text: &str) -> (Vec<Value>, Value) {
    let mut lines: Vec<&str> = text.lines().collect();
    let document = parse(lines.pop().unwrap_or_else(|| panic!("no line at all")));
    let interval = |line: &&str| {
        let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON: {error}:\n{line}"));
        let errors = interval_errors(&value);
        assert!(errors.is_empty(), "no interval:\n  {}\n{line}", errors.join("\n  "));
        value
    };
    (lines.iter().map(interval).collect(), document)
}
