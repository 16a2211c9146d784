//! What an arm is, and how it is written on the command line.

use linkproof_common::error::{Error, ErrorKind, Result};
use serde::Serialize;

/// One way of doing the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arm {
    /// What it is called.
    pub name: String,
    /// Variables that its runs find in the environment, beside what is there already.
    pub environment: Vec<(String, String)>,
    /// Options that its runs have beside the command line's.
    pub options: Vec<String>,
}

impl Arm {
    /// One that sets `environment` alone.
    pub fn setting(name: &str, environment: &[(&str, &str)]) -> Self {
        let owned = |(variable, value): &(&str, &str)| ((*variable).to_owned(), (*value).to_owned());
        Self {
            name: name.to_owned(),
            environment: environment.iter().map(owned).collect(),
            options: Vec::new(),
        }
    }

    /// The same with more options.
    #[must_use]
    pub fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// The value that it gives the option `name`, written `--name value` or `--name=value`.
    pub fn value_of(&self, name: &str) -> Option<&str> {
        let joined = self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        let apart = || self.options.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
        joined.or_else(apart)
    }

    /// The same with what the command line gives the option `name`, unless it gives it a value of its own.
    #[must_use]
    pub fn unless_its_own(self, name: &str, value: Option<&str>) -> Self {
        match value.filter(|_| self.value_of(name).is_none()) {
            Some(value) => self.with(&[name, value]),
            None => self,
        }
    }

    /// What it sets, in words.
    pub fn describe(&self) -> String {
        let variables = self.environment.iter().map(|(variable, value)| format!("{variable}={value}"));
        let words: Vec<String> = variables.chain(self.options.iter().cloned()).collect();
        if words.is_empty() { "nothing set".to_owned() } else { words.join(" ") }
    }
}

/// The arms that `words` name: each one of `known`, `NAME:VAR=VALUE,…`, or `NAME:-OPTION VALUE …`. A comma belongs to the
/// value unless a variable follows: `ports:NCCL_IB_HCA=mlx5_0,mlx5_1,NCCL_IB_TC=106` sets two. Options are parted by
/// blanks, and have none in them.
///
/// # Errors
/// [`ErrorKind::Usage`]: a name that is not known, one that is there twice, or fewer than two arms.
pub fn parse(words: &[String], known: &[Arm]) -> Result<Vec<Arm>> {
    let arms: Vec<Arm> = words.iter().map(|word| of_word(word, known)).collect::<Result<_>>()?;
    for (index, arm) in arms.iter().enumerate() {
        if arms[..index].iter().any(|other| other.name == arm.name) {
            return Err(usage(format!("--arm {} is there twice", arm.name))
                .hint("to see the noise, give the same settings two names: --arm a:X=1 --arm b:X=1"));
        }
    }
    if arms.len() < 2 {
        return Err(usage(format!("--arm {} is the only arm, and has none to be compared with", words[0]))
            .hint("give another; default is the tool as it is"));
    }
    Ok(arms)
}

fn of_word(word: &str, known: &[Arm]) -> Result<Arm> {
    let Some((name, settings)) = word.split_once(':') else {
        return known.iter().find(|arm| arm.name == word).cloned().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|arm| arm.name.as_str()).collect();
            usage(format!("no arm is called {word}"))
                .fact("known", names.join(", "))
                .hint("one of your own: --arm NAME:VARIABLE=VALUE,… or --arm \"NAME:-OPTION VALUE\"")
        });
    };
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(usage(format!("--arm {word} has no name"))
            .hint("--arm NAME:VARIABLE=VALUE,… or --arm \"NAME:-OPTION VALUE\""));
    }
    if known.iter().any(|arm| arm.name == name) {
        return Err(usage(format!("--arm {word}: {name} is the name of an arm that is there already"))
            .hint("choose another name"));
    }
    if settings.starts_with('-') {
        let options: Vec<&str> = settings.split_whitespace().collect();
        return Ok(Arm::setting(name, &[]).with(&options));
    }
    let mut environment: Vec<(String, String)> = Vec::new();
    for piece in settings.split(',').filter(|piece| !piece.is_empty()) {
        match (piece.split_once('='), environment.last_mut()) {
            (Some((variable, value)), _) if is_variable(variable) => {
                environment.push((variable.to_owned(), value.to_owned()));
            }
            (_, Some((_, value))) => {
                value.push(',');
                value.push_str(piece);
            }
            _ => {
                return Err(usage(format!("--arm {word}: {piece} is no VARIABLE=VALUE"))
                    .hint("--arm NAME:VARIABLE=VALUE,… or --arm \"NAME:-OPTION VALUE\""));
            }
        }
    }
    Ok(Arm { name: name.to_owned(), environment, options: Vec::new() })
}

fn is_variable(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arms(words: &[&str]) -> Result<Vec<Arm>> {
        let known = [Arm::setting("default", &[]), Arm::setting("tcp", &[("NCCL_NET", "Socket")])];
        parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), &known)
    }

    fn refusal(words: &[&str]) -> String {
        let error = arms(words).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        error.what
    }

    #[test]
    fn an_arm_is_known_or_sets_variables() {
        let arms = arms(&["tcp", "ports:NCCL_IB_HCA=mlx5_0,mlx5_1,NCCL_IB_TC=106", "none:"]).unwrap();
        let shown: Vec<String> = arms.iter().map(Arm::describe).collect();
        assert_eq!(shown, ["NCCL_NET=Socket", "NCCL_IB_HCA=mlx5_0,mlx5_1 NCCL_IB_TC=106", "nothing set"]);
        assert_eq!(arms[1].environment[0].1, "mlx5_0,mlx5_1");
    }

    #[test]
    fn an_arm_may_have_options_of_its_own() {
        let arms = arms(&["default", "wide:-q 8  --tx-depth=64"]).unwrap();
        assert_eq!(arms[1].options, ["-q", "8", "--tx-depth=64"]);
        assert_eq!(arms[1].describe(), "-q 8 --tx-depth=64");
        assert_eq!(arms[1].value_of("-q"), Some("8"));
        let (depth, name) = (Some("16"), "--tx-depth");
        assert_eq!(arms[1].clone().unless_its_own(name, depth).value_of(name), Some("64"));
        assert_eq!(arms[0].clone().unless_its_own(name, depth).options, [name, "16"]);
    }

    #[test]
    fn a_value_may_have_an_equals_sign() {
        let arms = arms(&["default", "a:X=--b=c,=d"]).unwrap();
        assert_eq!(arms[1].environment, [("X".to_owned(), "--b=c,=d".to_owned())]);
    }

    #[test]
    fn what_is_no_arm_is_refused_in_words() {
        assert_eq!(refusal(&["tcp", "rdma"]), "no arm is called rdma");
        assert!(refusal(&["tcp", "tcp"]).contains("twice"));
        assert!(refusal(&["tcp"]).contains("the only arm"));
        assert!(refusal(&["tcp", "a:b"]).contains("b is no VARIABLE=VALUE"));
        assert!(refusal(&["tcp", ":X=1"]).contains("no name"));
        assert!(refusal(&["default", "tcp:X=1"]).contains("there already"));
    }
}
