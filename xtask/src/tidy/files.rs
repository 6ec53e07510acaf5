//! Rules for any file: it begins by saying what it is, stays short, and mentions no particular machine.

use super::file::{File, Finding};

/// The maximum number of lines; a longer file is split by idea.
const MAX_LINES: usize = 500;
/// Most files are shorter than this; longer ones are counted, not refused.
const USUAL_LINES: usize = 300;

/// Top folders of paths on a particular machine. What is in them concerns nobody else.
const MACHINE_FOLDERS: &[&str] = &["work", "home", "root", "Users"];

/// Hosts that package managers download from. Which one a machine uses is its own setting.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("files.", "pythonhosted.org"),
    concat!("pypi.", "org"),
    concat!("deb.", "debian.org"),
    concat!("proxy.", "golang.org"),
    concat!("registry.", "npmjs.org"),
];

pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_rust() {
        findings.extend(header(file));
        findings.extend(length(file));
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        findings.extend(machine_path(file, number, line));
        findings.extend(registry(file, number, line));
    }
    findings
}

/// Returns the note on sizes for the last line of the report.
pub(super) fn sizes(files: &[File]) -> String {
    let rust: Vec<_> = files.iter().filter(|file| file.is_rust()).collect();
    let long = rust.iter().filter(|file| file.text.lines().count() > USUAL_LINES).count();
    format!("{} are Rust and {long} of these are longer than {USUAL_LINES} lines", rust.len())
}

fn header(file: &File) -> Option<Finding> {
    let has = file.text.lines().next().is_some_and(|line| line.starts_with("//! "));
    (!has).then(|| Finding::new(file, 1, "header", "start the file with a `//!` line that says what it is"))
}

fn length(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| {
        let advice = format!("{lines} lines, more than {MAX_LINES}: split the file by idea");
        Finding::new(file, lines, "length", advice)
    })
}

fn machine_path(file: &File, number: usize, line: &str) -> Option<Finding> {
    let folder = MACHINE_FOLDERS.iter().find(|folder| {
        line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
            let before = line.get(..at).and_then(|before| before.chars().next_back());
            // A path inside something else, such as `example.org/home/` or `$DIR/work/`, is not a path on a
            // machine.
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
        })
    })?;
    let advice = format!("a path under /{folder} is of one machine: take it out or make it relative");
    Some(Finding::new(file, number, "place", advice))
}

fn registry(file: &File, number: usize, line: &str) -> Option<Finding> {
    let lockfile_source = line.strip_prefix("source = \"").filter(|_| file.path.ends_with("Cargo.lock"));
    let advice = if lockfile_source
        .is_some_and(|source| !source.starts_with("registry+https://github.com/rust-lang/crates.io-index"))
    {
        "a dependency comes from elsewhere than crates.io: lock it again without source replacement"
    } else if file.path.ends_with(".cargo/config.toml")
        && (line.starts_with("[source") || line.starts_with("[registr"))
    {
        "where packages are fetched from is each machine's setting: put it in the home folder's cargo configuration"
    } else if REGISTRY_HOSTS.iter().any(|host| line.contains(host)) {
        "a package registry's host is each machine's setting: take it out"
    } else {
        return None;
    };
    Some(Finding::new(file, number, "place", advice))
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        check(&sample(path, text)).iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_rust_file_starts_with_a_module_comment() {
        assert_eq!(rules("a.rs", "//! What it is.\nfn a() {}\n"), []);
        for text in ["fn a() {}\n", "", "// Not it.\n", "\n//! Late.\n", "//!\n"] {
            assert_eq!(rules("a.rs", text), [(1, "header")], "{text:?}");
        }
        assert_eq!(rules("a.md", "# Not Rust\n"), []);
    }

    #[test]
    fn five_hundred_lines_are_the_end() {
        let lines = |n: usize| format!("//! Top.\n{}", "// x\n".repeat(n - 1));
        assert_eq!(rules("a.rs", &lines(500)), []);
        assert_eq!(rules("a.rs", &lines(501)), [(501, "length")]);
        let files = [sample("a.rs", &lines(300)), sample("b.rs", &lines(301)), sample("c.md", &lines(400))];
        assert_eq!(sizes(&files), "2 are Rust and 1 of these are longer than 300 lines");
    }

    #[test]
    fn machine_paths_are_found_in_any_file() {
        for (start, folder) in [("see ", "work"), ("\"", "home"), ("", "root"), ("file://", "Users")] {
            let text = format!("first\n{start}/{folder}/x\n");
            assert_eq!(rules("notes.md", &text), [(2, "place")], "{text:?}");
        }
        for text in
            [format!("https://example.org/{}/x", "home"), "a homework/file".to_owned(), "/workers".to_owned()]
        {
            assert_eq!(rules("notes.md", &text), [], "{text:?}");
        }
    }

    #[test]
    fn registries_are_not_named() {
        assert_eq!(rules("a.md", "https://crates.io/crates/anyqueue\n"), []);
        assert_eq!(rules("a.md", &format!("get it from {}\n", REGISTRY_HOSTS[0])), [(1, "place")]);
        assert_eq!(rules(".cargo/config.toml", "[alias]\n[source.crates-io]\n"), [(2, "place")]);
        let locked = |from: &str| rules("Cargo.lock", &format!("source = \"{from}\"\n"));
        assert_eq!(locked("registry+https://github.com/rust-lang/crates.io-index"), []);
        assert_eq!(locked("registry+https://mirror.example/index"), [(1, "place")]);
        assert_eq!(locked("git+https://example.org/fork"), [(1, "place")]);
    }
}
