//! The description of the service.

use std::path::Path;

use serde_json::Value;

use crate::bed::Bed;

/// Set to write the file anew.
const UPDATE: &str = "ANYQUEUE_UPDATE_OPENAPI";

#[test]
fn the_committed_description_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let made = format!("{}\n", anyqueue_server::openapi().trim_end());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "server/openapi.json is old: run this test with {UPDATE}=1");
}

#[tokio::test]
async fn the_service_describes_itself_and_each_request_has_a_name_and_a_description() {
    let bed = Bed::new().await;
    let description = bed.client.get("/openapi.json").await.ok();
    assert_eq!(description["openapi"], "3.1.0");
    let mut names = std::collections::HashSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, request) in methods.as_object().unwrap() {
            let name = request["operationId"].as_str().unwrap_or_default().to_owned();
            let said = [&request["summary"], &request["description"]];
            assert!(
                said.iter().any(|text| text.as_str().is_some_and(|text| !text.is_empty())),
                "{method} {path}"
            );
            assert!(names.insert(name.clone()), "{name} twice");
        }
    }
    references_lead_somewhere(&description, &description);
}

fn references_lead_somewhere(part: &Value, whole: &Value) {
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(whole.pointer(pointer).is_some(), "{reference}");
    }
    match part {
        Value::Object(fields) => fields.values().for_each(|field| references_lead_somewhere(field, whole)),
        Value::Array(items) => items.iter().for_each(|item| references_lead_somewhere(item, whole)),
        _ => {}
    }
}
