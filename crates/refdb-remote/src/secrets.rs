//! What no message may show: the secrets of the environment.

/// What the names of variables begin with that say how to get at a bucket.
const PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// What the name of a variable has in it if its value is a secret.
const WORDS: [&str; 6] = ["SECRET", "TOKEN", "KEY", "SAS", "PASSWORD", "CREDENTIAL"];

/// What the name of a variable ends with if its value is none all the same.
const HARMLESS: [&str; 6] = ["_ID", "_FILE", "_URI", "_TYPE", "_PATH", "_ENABLED"];

/// What stands where a secret would.
const HIDDEN: &str = "(hidden)";

/// Too short to be one, and it would hide parts of other words.
const LEN_MIN: usize = 5;

/// The secrets that this process was given.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Secrets {
    /// Collects them from the environment.
    pub(crate) fn of_environment() -> Secrets {
        let variables = std::env::vars_os();
        let texts = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Secrets::among(texts)
    }

    fn among(variables: impl Iterator<Item = (String, String)>) -> Secrets {
        let is_secret = |name: &str| {
            PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                && WORDS.iter().any(|word| name.contains(word))
                && !HARMLESS.iter().any(|end| name.ends_with(end))
        };
        let found = variables.filter(|(name, value)| value.len() >= LEN_MIN && is_secret(name));
        let mut values: Vec<String> = found.map(|it| it.1).collect();
        // Of two that begin alike, the longer one is hidden whole.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Secrets(values)
    }

    /// Returns a text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = text.replace(secret.as_str(), HIDDEN);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_what_is_none_is_not() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "hunter2/hunter2"),
            ("AWS_SESSION_TOKEN", "hunter2"),
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=abc"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "{\"private_key\"}"),
            ("AWS_REGION", "eu-central-1"),
            ("HOME_KEY", "/home/me"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = Secrets::among(variables.into_iter());
        let text = "a hunter2/hunter2 b hunter2 c AKIDEXAMPLE sv=1&sig=abc {\"private_key\"} eu-central-1 /home/me";
        let hidden = "a (hidden) b (hidden) c AKIDEXAMPLE (hidden) (hidden) eu-central-1 /home/me";
        assert_eq!(secrets.hide(text), hidden);
        assert_eq!(format!("{secrets:?}"), HIDDEN);
    }
}
