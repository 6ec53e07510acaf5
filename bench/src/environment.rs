//! What a figure was measured on, as the machine itself reports it, so that nobody has to type it.

use std::fs;
use std::thread;
use std::time::SystemTime;

use serde::Serialize;

/// Printed with each figure, so that lines of several runs can be combined and still say where they come
/// from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    /// The day, in UTC.
    date: String,
    processor: Option<String>,
    /// The number of cores that this program may use.
    cores: Option<usize>,
    memory_mib: Option<u64>,
    system: String,
    /// The compiler.
    rust: &'static str,
    /// Figures of an unoptimized program are worth nothing.
    optimized: bool,
    /// The version of the server, or of the library in its place.
    server: Option<String>,
}

impl Environment {
    /// Returns this machine, today, with a server of this version.
    pub(crate) fn here(server: Option<String>) -> Self {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self {
            date: now.chars().take_while(|c| *c != 'T').collect(),
            processor: value_in("/proc/cpuinfo", "model name", ':'),
            cores: thread::available_parallelism().ok().map(Into::into),
            memory_mib: memory_mib(),
            system: system(),
            rust: env!("ANYQUEUE_BENCH_RUST"),
            optimized: !cfg!(debug_assertions),
            server,
        }
    }
}

/// Returns a text such as `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`.
fn system() -> String {
    let name = value_in("/etc/os-release", "PRETTY_NAME", '=').map(|name| name.trim_matches('"').to_owned());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let kernel = kernel.map(|release| format!("Linux {}", release.trim()));
    let known: Vec<_> = name.into_iter().chain(kernel).collect();
    if known.is_empty() { std::env::consts::OS.to_owned() } else { known.join(", ") }
}

fn memory_mib() -> Option<u64> {
    let total = value_in("/proc/meminfo", "MemTotal", ':')?;
    total.strip_suffix("kB")?.trim().parse().ok().map(|kib: u64| kib / 1024)
}

/// Returns the value in the first line of the file that begins with the name.
fn value_in(file: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_it_is() {
        let here = serde_json::to_value(Environment::here(Some("7.0".to_owned()))).unwrap();
        let date = here["date"].as_str().unwrap();
        assert!(date.len() == 10 && date.matches('-').count() == 2, "{date}");
        assert!(here["cores"].as_u64().unwrap() > 0);
        assert!(here["rust"].as_str().unwrap().starts_with("rustc 1."), "{here}");
        assert_eq!(here["server"], "7.0");
        assert_eq!(here["optimized"], !cfg!(debug_assertions));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_also_tells_its_memory_and_its_name() {
        let here = Environment::here(None);
        assert!(here.memory_mib.unwrap() > 64, "{here:?}");
        assert!(here.system.contains("Linux "), "{here:?}");
    }
}
