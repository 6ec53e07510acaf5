//! What ended, as charts and as a table.

use serde_json::json;

use crate::bed::Bed;
use crate::browser::{Browser, Scripts};

async fn ends(bed: &Bed, status: &str) {
    bed.push("mail", json!({ "payload": "x" })).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": status })).await;
}

/// A queue is listed while it has messages.
async fn bed() -> Bed {
    let bed = Bed::new().await;
    for status in ["processed", "processed", "poisonous"] {
        ends(&bed, status).await;
    }
    bed
}

/// The cell of the table that says how many succeeded in all.
const ALL: &str = "//details[@open]//tr[th='All']/td[1]";

/// By a script, which gives it no focus: what has the focus is not exchanged.
const OPEN: &str = "document.querySelector('#ended summary').click()";

async fn charts_and_table(scripts: Scripts) {
    let bed = bed().await;
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go_until("/", "Ended in the last hour").await;
    let chart = |name: &str| {
        format!("//figure[figcaption[starts-with(normalize-space(.), '{name}')]]/*[local-name()='svg']")
    };
    for (name, told) in [
        ("Ended", "Ended in the last hour, by 5 minutes: succeeded 2, failed 1, timed out 0, cancelled 0"),
        ("Run time", "They ran in the last hour, by 5 minutes: half of them < "),
        ("Wait time", "They waited in the last hour, by 5 minutes: half of them < "),
    ] {
        let label = browser.find(&chart(name)).await.attr("aria-label").await.unwrap().unwrap();
        assert!(label.starts_with(told), "{name}: {label}");
        browser.find(&format!("{}/*[local-name()='rect']", chart(name))).await;
    }
    // A column has room and a colour: no style of a page alone could draw it.
    let seen = "return [...document.querySelectorAll('#ended rect')].every(e => e.getBoundingClientRect().width > 1 && getComputedStyle(e).fill !== 'rgb(0, 0, 0)')";
    assert_eq!(browser.ask(seen).await, true);
    browser.press("day", "/").await;
    assert_eq!(browser.place().await, "/?span=day");
    browser.find("//h2[.='Ended in the last day']").await;
    browser.find("//summary[.='The same as a table']").await;
    browser.ask(OPEN).await;
    browser.find(&format!("{ALL}[.='2']")).await;
    browser.close().await;
}

#[tokio::test]
async fn charts_and_a_table_with_a_script() {
    charts_and_table(Scripts::On).await;
}

#[tokio::test]
async fn charts_and_a_table_without_a_script() {
    charts_and_table(Scripts::Off).await;
}

#[tokio::test]
async fn an_open_table_stays_open_while_its_counts_go_on() {
    let bed = bed().await;
    let Some(browser) = Browser::open(&bed, Scripts::On).await else { return };
    browser.go("/partitions/mail").await;
    browser.find("//*[@id='live'][not(@hidden)]").await;
    browser.find("//summary").await;
    browser.ask(OPEN).await;
    browser.find(&format!("{ALL}[.='2']")).await;
    ends(&bed, "processed").await;
    browser.find(&format!("{ALL}[.='3']")).await;
    browser.close().await;
}
