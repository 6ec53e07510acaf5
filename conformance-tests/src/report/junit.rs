//! The report as JUnit's XML, which build servers read.

use std::io::{Error, Write};

use quick_xml::events::BytesText;
use quick_xml::writer::Writer;

use super::{CaseReport, Report};
use crate::verdict::Outcome;

impl Report {
    /// Returns the report as JUnit's XML: one test suite per backend, one test case per case, with its group
    /// as the class.
    pub fn to_junit(&self) -> String {
        let mut xml = Vec::new();
        // Writing to memory cannot fail.
        let _ = self.write_junit(&mut Writer::new_with_indent(&mut xml, b' ', 2));
        String::from_utf8(xml).unwrap_or_default()
    }

    fn write_junit(&self, xml: &mut Writer<&mut Vec<u8>>) -> Result<(), Error> {
        let tally = self.tally();
        let suite = [
            ("name", self.about.backend.clone()),
            ("tests", self.cases.len().to_string()),
            ("failures", (tally.failed + tally.inconclusive).to_string()),
            ("errors", "0".to_owned()),
            ("skipped", tally.not_applicable.to_string()),
            ("time", seconds(self.took_ms)),
        ];
        xml.get_mut().write_all(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")?;
        xml.create_element("testsuite")
            .with_attributes(suite.iter().map(attribute))
            .write_inner_content(|xml| self.cases.iter().try_for_each(|case| write_case(xml, case)))?;
        Ok(())
    }
}

fn write_case(xml: &mut Writer<&mut Vec<u8>>, case: &CaseReport) -> Result<(), Error> {
    let name =
        [("classname", case.group.to_owned()), ("name", case.id.to_owned()), ("time", seconds(case.took_ms))];
    let element = xml.create_element("testcase").with_attributes(name.iter().map(attribute));
    match &case.outcome {
        Outcome::Pass => element.write_empty()?,
        Outcome::Fail(failure) => {
            let text = failure.to_string();
            element.write_inner_content(|xml| {
                let message = [("message", format!("clause {}: {}", failure.clause, failure.expected))];
                let element = xml.create_element("failure").with_attributes(message.iter().map(attribute));
                element.write_text_content(BytesText::new(&text)).map(drop)
            })?
        }
        Outcome::Inconclusive { why } => element.write_inner_content(|xml| {
            let message = [("message", format!("inconclusive: {why}"))];
            xml.create_element("failure")
                .with_attributes(message.iter().map(attribute))
                .write_empty()
                .map(drop)
        })?,
        Outcome::NotApplicable { needs, rule, .. } => element.write_inner_content(|xml| {
            let why = rule.map_or_else(|| format!("needs {needs}"), |rule| format!("needs {needs}: {rule}"));
            let message = [("message", why)];
            xml.create_element("skipped")
                .with_attributes(message.iter().map(attribute))
                .write_empty()
                .map(drop)
        })?,
    };
    Ok(())
}

fn attribute<'a>((name, value): &'a (&'static str, String)) -> (&'a str, &'a str) {
    (name, value)
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
