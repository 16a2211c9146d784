//! The schema of the result document, `schema/result.v1.json`.

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

/// The schema.
///
/// # Panics
/// Where it isn't JSON.
pub fn document() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        serde_json::from_str(include_str!("../../schema/result.v1.json")).expect("the schema is JSON")
    })
}

fn validator() -> &'static Validator {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    VALIDATOR.get_or_init(|| {
        jsonschema::draft202012::options()
            .should_validate_formats(true)
            .build(document())
            .expect("the schema is a JSON Schema")
    })
}

/// Everything that is wrong with `value`, each with its place; empty where it is valid.
pub fn errors(value: &Value) -> Vec<String> {
    validator().iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
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
    let value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("not one JSON value: {error}:\n{text}"));
    validate(&value);
    value
}
