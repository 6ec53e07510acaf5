//! Who may know whom, as far as sources show it: core and the suite name no backend, and adapters stay thin.

use super::file::{File, Finding};
use super::source::{Source, has_word, is_word};

/// The names by which a backend or its client is known.
const BACKENDS: &[&str] =
    &["sqlite", "sqlx", "postgres", "postgresql", "redis", "rabbitmq", "lapin", "amqp", "sqs"];

pub(super) fn check(file: &File, source: &Source) -> Vec<Finding> {
    if file.path.ends_with("/tests.rs") || file.path.contains("/tests/") {
        Vec::new()
    } else if file.path.starts_with("core/src/") {
        backends_named(file, source, "core names no backend: say it in terms of capabilities")
    } else if file.path.starts_with("conformance-tests/src/") {
        backends_named(file, source, "the suite names no backend: ask its capabilities instead")
    } else if file.path.starts_with("adapters/") && file.path.contains("/src/") {
        thin(file, source)
    } else {
        Vec::new()
    }
}

/// Finds backends named in code and literals. Comments and unit tests may name them as examples.
fn backends_named(file: &File, source: &Source, advice: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = source.code.lines().zip(source.literals.lines());
    for (number, (code, literals)) in (1..source.tests_begin()).zip(lines) {
        for backend in BACKENDS {
            if names(code, backend) || names(literals, backend) {
                findings.push(Finding::new(file, number, "layer", format!("`{backend}`: {advice}")));
            }
        }
    }
    findings
}

/// Returns whether the text names the backend, even inside an identifier: `RedisQueue`, `anyqueue_redis`,
/// `REDIS_URL`, but not `redistribute`.
fn names(text: &str, backend: &str) -> bool {
    let goes_on = |inner: Option<char>, outer: Option<char>| {
        inner.zip(outer).is_some_and(|(inner, outer)| {
            inner.is_ascii_lowercase() && outer.is_ascii_lowercase()
                || inner.is_ascii_uppercase() && outer.is_ascii_uppercase()
        })
    };
    text.to_ascii_lowercase().match_indices(backend).any(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let (found, after) = rest.split_at(backend.len());
        !goes_on(found.chars().next(), before.chars().next_back())
            && !goes_on(found.chars().next_back(), after.chars().next())
    })
}

/// Finds what an adapter does not need: core has the retry loop, and payloads are bytes.
fn thin(file: &File, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines: Vec<&str> = source.code.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        if ["serde", "serde_json"].iter().any(|word| has_word(line, word)) {
            let advice = "payloads are bytes and the envelope is core's: leave serialisation out";
            findings.push(Finding::new(file, number, "thin adapter", advice));
        }
        if let Some(name) = function_name(line)
            && (name.starts_with("retry") || name.contains("retries"))
            && !returns_retry_class(lines.get(index..).unwrap_or(&[]))
        {
            let advice = format!("`{name}`: class the error and leave repeating to core");
            findings.push(Finding::new(file, number, "thin adapter", advice));
        }
    }
    findings
}

fn function_name(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("fn ").filter(|(before, _)| !before.ends_with(is_word))?;
    after.split(|c| !is_word(c)).next().filter(|name| !name.is_empty())
}

/// Returns whether this is a function that only says what repeating would do; an adapter should have that.
fn returns_retry_class(lines: &[&str]) -> bool {
    let text = lines.join(" ");
    let signature = text.split(['{', ';']).next().unwrap_or_default();
    signature.split_once("->").is_some_and(|(_, returned)| has_word(returned, "RetryClass"))
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = sample(path, text);
        check(&file, &Source::parse(&file.text)).iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn core_and_the_suite_name_no_backend() {
        for path in ["core/src/queue/mod.rs", "conformance-tests/src/cases/push.rs"] {
            for text in [
                "use anyqueue_sqlite::X;",
                "if name == \"redis\" {}",
                "struct RabbitMqQuirk;",
                "const SQS_MAX: u8;",
            ] {
                assert_eq!(rules(path, &format!("//! Top.\n{text}\n")), [(2, "layer")], "{path}: {text}");
            }
            for text in ["/// As sqlite does.", "let redistributed = postgressed;", "use anyqueue_memory::X;"]
            {
                assert_eq!(rules(path, text), [], "{path}: {text}");
            }
        }
        assert_eq!(
            rules("core/src/url.rs", "//! A.\n#[cfg(test)]\nmod tests { const U: &str = \"sqlite:x\"; }\n"),
            []
        );
        assert_eq!(rules("core/src/queue/tests.rs", "//! A.\nuse anyqueue_sqlite::X;\n"), []);
        assert_eq!(rules("bench/src/main.rs", "use anyqueue_sqlite::X;"), []);
    }

    #[test]
    fn adapters_leave_serialisation_and_repeating_to_core() {
        let path = "adapters/x/src/push.rs";
        for text in [
            "use serde::Serialize;",
            "serde_json::to_vec(x)",
            "async fn retry_push() {}",
            "fn with_retries<T>() {}",
        ] {
            assert_eq!(rules(path, text), [(1, "thin adapter")], "{text}");
        }
        for text in [
            "fn retry_class(e: &E) -> RetryClass {",
            "fn retry_class(\n    error: &Error,\n) -> RetryClass {",
            "fn push() { error.with_retry(RetryClass::Safe) }",
            "// no serde, no fn retry()",
        ] {
            assert_eq!(rules(path, text), [], "{text}");
        }
        assert_eq!(rules("adapters/x/tests/conformance.rs", "use serde_json::Value;"), []);
    }
}
