//! Puts generated text where it belongs in a document.

use std::collections::BTreeMap;

/// Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub(crate) fn between_marks(document: &str, name: &str, printed: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let parts = document.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        return Err(format!("the lines {begin} and {end} must stand in it, in this order"));
    };
    if printed.trim().is_empty() {
        return Err(format!("nothing was printed for {name}"));
    }
    Ok(format!("{before}{begin}\n{}\n{end}{after}", printed.trim()))
}

/// The document is the text.
#[allow(clippy::unnecessary_wraps, reason = "it is one of several ways to place a text")]
pub(crate) fn whole(_document: &str, _name: &str, printed: &str) -> Result<String, String> {
    Ok(printed.to_owned())
}

/// Writes the `Cases:` line of each clause `### n. Title`, at the clause's end where it has none. Printed is a line
/// ``n `id`, `id` `` for each clause that has cases: a clause without cases and cases without a clause are errors.
pub(crate) fn cases_lines(document: &str, _name: &str, printed: &str) -> Result<String, String> {
    let mut cases: BTreeMap<&str, &str> = printed.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut sections: Vec<Vec<String>> = vec![Vec::new()];
    for line in document.lines() {
        if line.starts_with('#') {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.push(line.to_owned());
        }
    }
    for section in &mut sections {
        let Some(number) = section.first().and_then(|heading| clause_number(heading)) else { continue };
        let ids = cases.remove(number.as_str()).ok_or_else(|| {
            format!("clause {number}: no case of the suite proves it, or another clause has its number")
        })?;
        write_cases(section, format!("Cases: {ids}"));
    }
    if let Some((number, ids)) = cases.first_key_value() {
        return Err(format!("clause {number} does not exist, but these cases name it: {ids}"));
    }
    Ok(sections.concat().iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat())
}

fn clause_number(heading: &str) -> Option<String> {
    let (number, _) = heading.strip_prefix("### ")?.split_once(". ")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.to_owned())
}

fn write_cases(clause: &mut Vec<String>, cases: String) {
    if let Some(line) = clause.iter_mut().find(|line| line.starts_with("Cases:")) {
        *line = cases;
        return;
    }
    let end = clause.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    // The blank line makes it a paragraph of its own.
    clause.splice(end..end, [String::new(), cases]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let old = "# Title\n<!-- t:begin -->\nold\n<!-- t:end -->\nrest\n";
        let new = between_marks(old, "t", "| new |\n").unwrap();
        assert_eq!(new, "# Title\n<!-- t:begin -->\n| new |\n<!-- t:end -->\nrest\n");
        assert_eq!(between_marks(&new, "t", "| new |\n").unwrap(), new, "writing again changes nothing");
    }

    #[test]
    fn missing_marks_and_an_empty_table_are_errors() {
        assert!(between_marks("no marks", "t", "new").is_err());
        assert!(between_marks("<!-- t:end --><!-- t:begin -->", "t", "new").is_err());
        assert!(between_marks("<!-- t:begin --><!-- t:end -->", "t", " \n").is_err());
    }

    const CONTRACT: &str =
        "# C\nCases: prose\n\n### 1. One\nText.\n\n## Part\n### Words\n### 12. Twelve\nCases: `old`\n";

    #[test]
    fn each_clause_gets_its_own_cases() {
        let new = cases_lines(CONTRACT, "", "12 `b.c`\n1 `a.b`, `b.c`\n").unwrap();
        let wanted = CONTRACT.replace("Text.\n", "Text.\n\nCases: `a.b`, `b.c`\n").replace("`old`", "`b.c`");
        assert_eq!(new, wanted);
        assert_eq!(
            cases_lines(&new, "", "1 `a.b`, `b.c`\n12 `b.c`\n").unwrap(),
            new,
            "writing again changes nothing"
        );
    }

    #[test]
    fn a_clause_without_cases_and_cases_without_a_clause_are_errors() {
        let no_case = cases_lines(CONTRACT, "", "1 `a.b`\n").unwrap_err();
        assert!(no_case.contains("clause 12: no case"), "{no_case}");
        let no_clause = cases_lines(CONTRACT, "", "1 `a.b`\n12 `b.c`\n13 `c.d`\n").unwrap_err();
        assert!(no_clause.contains("clause 13") && no_clause.contains("`c.d`"), "{no_clause}");
    }
}
