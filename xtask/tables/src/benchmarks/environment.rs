//! What the figures were measured on.

use std::fmt::Write as _;

use super::figures::Environment;

/// Returns what the scenarios were measured on: one sentence if that is the same for all, otherwise one for
/// each kind.
pub(super) fn measured_on(lines: Vec<(&str, Option<&Environment>)>) -> String {
    let mut kinds: Vec<(Option<&Environment>, Vec<&str>)> = Vec::new();
    for (scenario, environment) in lines {
        match kinds.iter_mut().find(|(kind, _)| *kind == environment) {
            Some((_, scenarios)) => scenarios.push(scenario),
            None => kinds.push((environment, vec![scenario])),
        }
    }
    let alone = kinds.len() == 1;
    let mut text = String::new();
    for (environment, scenarios) in kinds {
        let of_what = if alone { String::new() } else { format!("`{}`: ", scenarios.join("`, `")) };
        let _ = write!(text, "{of_what}{}\n\n", environment.map_or_else(unknown, described));
    }
    text
}

fn unknown() -> String {
    "On what machine, and when: not recorded with these figures.".to_owned()
}

fn described(on: &Environment) -> String {
    let mut text = format!("Measured on {}", on.date);
    if let Some(server) = &on.server {
        let _ = write!(text, ", version {server}");
    }
    let _ = write!(text, ". {}", on.processor.as_deref().unwrap_or("Processor not told"));
    if let Some(cores) = on.cores {
        let _ = write!(text, ", {cores} cores");
    }
    if let Some(mib) = on.memory_mib {
        let _ = write!(text, ", {} GiB", mib.div_ceil(1024));
    }
    let _ = write!(text, "; {}; {}.", on.system, on.rust);
    if !on.optimized {
        text.push_str(" **Not optimized: these figures say nothing.**");
    }
    text
}
