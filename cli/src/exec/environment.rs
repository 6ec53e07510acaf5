//! The environment variables of a command.

use anyqueue_worker::TaskContext;

/// A longer variable is left out: the system refuses to start a command with a variable of 128 KiB.
const VARIABLE_BYTES: usize = 100_000;
/// The limit for all variables of a message together: the system refuses to start a command with 2 MiB of
/// arguments and environment, and the worker's own environment is part of that.
const TOTAL_BYTES: usize = 500_000;
/// Tells how many variables were left out.
const OMITTED: &str = "ANYQUEUE_OMITTED";

/// Variables by name, the most important first.
#[derive(Debug)]
pub(super) struct Environment {
    variables: Vec<(String, String)>,
    /// How many variables, counted from the first, identify the message.
    essential: usize,
}

impl Environment {
    /// The variables for the command of a task.
    pub(super) fn of(task: &TaskContext) -> Self {
        let message = task.message();
        let mut variables = vec![
            ("ANYQUEUE_QUEUE".to_owned(), task.partition().name().to_owned()),
            ("ANYQUEUE_MESSAGE_ID".to_owned(), message.id().to_string()),
            ("ANYQUEUE_ATTEMPT".to_owned(), task.attempt().to_string()),
            ("ANYQUEUE_PRIORITY".to_owned(), message.options().priority.to_string()),
        ];
        let essential = variables.len();
        let mut add = |name: &str, value: Option<String>| {
            // A variable cannot contain a NUL byte; in `ANYQUEUE_HEADERS` it is escaped.
            variables
                .extend(value.filter(|value| !value.contains('\0')).map(|value| (name.to_owned(), value)));
        };
        add("ANYQUEUE_TASK_ID", message.task_id().map(str::to_owned));
        add("ANYQUEUE_SESSION_ID", message.session_id().map(str::to_owned));
        add("ANYQUEUE_DELIVERIES", task.delivery_count().map(|count| count.to_string()));
        add("ANYQUEUE_KIND", Some(task.kind().to_owned()).filter(|kind| !kind.is_empty()));
        add("TRACEPARENT", message.headers().get(anyqueue::header::TRACEPARENT).cloned());
        add("ANYQUEUE_HEADERS", serde_json::to_string(message.headers()).ok());
        for (name, value) in message.headers() {
            add(&format!("ANYQUEUE_HEADER_{}", variable(name)), Some(value.clone()));
        }
        Self { variables, essential }
    }

    /// As many variables as a command can be started with, and how many are missing.
    pub(super) fn fitting(&self) -> Vec<(&str, String)> {
        self.within(VARIABLE_BYTES, TOTAL_BYTES)
    }

    /// Only the variables that identify the message, and how many are missing.
    pub(super) fn essential(&self) -> Vec<(&str, String)> {
        let chosen = self.variables.iter().take(self.essential);
        let chosen = chosen.map(|(name, value)| (name.as_str(), value.clone()));
        self.with_omitted(chosen.collect())
    }

    fn within(&self, each: usize, all: usize) -> Vec<(&str, String)> {
        let mut taken = 0;
        let mut chosen = Vec::with_capacity(self.variables.len());
        for (name, value) in &self.variables {
            let bytes = name.len() + value.len() + 2; // `=` and the end
            if bytes <= each && taken + bytes <= all {
                taken += bytes;
                chosen.push((name.as_str(), value.clone()));
            }
        }
        self.with_omitted(chosen)
    }

    fn with_omitted<'a>(&self, mut chosen: Vec<(&'a str, String)>) -> Vec<(&'a str, String)> {
        let omitted = self.variables.len().saturating_sub(chosen.len());
        if omitted > 0 {
            chosen.push((OMITTED, omitted.to_string()));
        }
        chosen
    }
}

/// A header's name as part of a variable's name: `Content-Type` becomes `CONTENT_TYPE`.
fn variable(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_headers_become_names_of_variables() {
        assert_eq!(variable("Content-Type"), "CONTENT_TYPE");
        assert_eq!(variable("a.b c/ü=9"), "A_B_C___9");
    }

    #[test]
    fn what_is_too_long_alone_or_together_is_left_out_and_counted() {
        let filled = |name: &str, bytes| (name.to_owned(), "x".repeat(bytes));
        let variables =
            vec![filled("A", 3), filled("B", 100), filled("C", 40), filled("D", 40), filled("E", 3)];
        let environment = Environment { variables, essential: 1 };
        let names =
            |chosen: Vec<(&str, String)>| chosen.iter().map(|(n, _)| (*n).to_owned()).collect::<Vec<_>>();
        let chosen = environment.within(50, 60);
        assert_eq!(chosen.last(), Some(&(OMITTED, "2".to_owned())));
        assert_eq!(names(chosen), ["A", "C", "E", OMITTED]);
        assert_eq!(names(environment.within(102, 1000)), ["A", "C", "D", "E", OMITTED]);
        assert_eq!(names(environment.within(1000, 1000)), ["A", "B", "C", "D", "E"]);
        assert_eq!(environment.essential().last(), Some(&(OMITTED, "4".to_owned())));
    }
}
