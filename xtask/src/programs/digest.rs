//! A short form of what a failed test program printed: logs are cut, and their ends are read first.

/// This many lines of each failed test, and this many characters of each line.
const LINES: usize = 6;
const WIDTH: usize = 240;

/// Returns the beginning of what each failed test printed, as lines to append to another.
pub(super) fn of(said: &str) -> String {
    let mut digest = String::new();
    let mut left = 0;
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        if is_head(line) {
            left = LINES + 1;
        } else if line == "failures:" {
            left = 0;
        }
        if left > 0 {
            left -= 1;
            digest.push_str("\n    ");
            digest.extend(line.chars().take(WIDTH));
        }
    }
    digest
}

/// Returns whether the output of a failed test begins with this line.
fn is_head(line: &str) -> bool {
    line.starts_with("---- ") && line.ends_with(" ----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_test_is_told_with_the_first_of_what_it_said() {
        let long = "x".repeat(WIDTH + 1);
        let lines: Vec<String> = (0..LINES + 3).map(|number| format!("line {number}")).collect();
        let said = format!(
            "running 3 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\n{}\n---- b ----\n{long}\n\nfailures:\n    a\n    b\n",
            lines.join("\n")
        );
        let digest = of(&said);
        let told: Vec<&str> = digest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(told.first(), Some(&"---- a stdout ----"));
        assert_eq!(told.get(LINES), Some(&format!("line {}", LINES - 1).as_str()));
        assert_eq!(told.get(LINES + 1..), Some(&["---- b ----", &long[..WIDTH]][..]));
    }

    #[test]
    fn of_what_tells_no_failed_test_there_is_none() {
        assert_eq!(of("running 1 test\ntest a ... ok\n"), "");
    }
}
