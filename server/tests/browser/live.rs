//! One acts, another one sees it.

use serde_json::json;

use crate::bed::Bed;
use crate::browser::{Browser, Scripts};

/// Remembers that the page was not loaded anew.
const MARK: &str = "window.marked = true";
const IS_MARKED: &str = "return window.marked === true";

#[tokio::test]
async fn what_one_does_another_sees_without_a_reload() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let Some((actor, watcher)) = Browser::two(&bed).await else { return };
    watcher.go("/").await;
    watcher.find("//*[@id='live'][not(@hidden)]").await;
    watcher.ask(MARK).await;
    assert!(!watcher.says("paused").await);
    actor.go("/partitions/mail").await;
    actor.press("Pause", "/partitions/mail").await;
    watcher.see("mail is paused, and 1 message waits.").await;
    actor.press("Resume", "/partitions/mail").await;
    watcher.find("//body[not(contains(., 'mail is paused'))]").await;
    bed.push("orders", json!({ "payload": "x" })).await;
    watcher.find("//th[.='orders']").await;
    assert_eq!(watcher.ask(IS_MARKED).await, true);
    actor.close().await;
    watcher.close().await;
}

#[tokio::test]
async fn what_can_be_done_changes_as_others_do_it() {
    let bed = Bed::new().await;
    let id = bed.push("mail", json!({ "payload": "x" })).await;
    let Some(browser) = Browser::open(&bed, Scripts::On).await else { return };
    browser.go("/partitions/mail").await;
    browser.find("//button[.='Pause']").await;
    bed.queue.pause("mail").await.unwrap();
    browser.find("//button[.='Resume']").await;
    bed.queue.resume("mail").await.unwrap();
    browser.see("It delivers.").await;
    browser.go(&format!("/tasks/{id}?partition=mail")).await;
    browser.find("//button[.='Cancel']").await;
    browser.find("//*[@id='live'][not(@hidden)]").await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "processed" })).await;
    browser.find("//main[not(.//button[.='Cancel'])]").await;
    browser.close().await;
}

#[tokio::test]
async fn what_somebody_uses_is_not_exchanged_under_their_hands() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let Some(browser) = Browser::open(&bed, Scripts::On).await else { return };
    browser.go("/").await;
    browser.find("//*[@id='live'][not(@hidden)]").await;
    browser.find("//*[@id='queues']//tbody//a").await;
    browser.ask("document.querySelector('#queues tbody a').focus()").await;
    bed.push("orders", json!({ "payload": "x" })).await;
    browser.find("//*[@id='tiles'][contains(., '2')]").await;
    assert_eq!(browser.ask("return document.activeElement.textContent").await, "mail");
    browser.ask("document.activeElement.blur()").await;
    bed.push("orders", json!({ "payload": "y" })).await;
    browser.find("//th[.='orders']").await;
    browser.close().await;
}

#[tokio::test]
async fn charts_of_what_goes_on_appear_without_a_reload() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let Some(browser) = Browser::open(&bed, Scripts::On).await else { return };
    for path in ["/", "/partitions/mail"] {
        browser.go(path).await;
        browser.ask(MARK).await;
        let chart = "//figure[figcaption[starts-with(normalize-space(.), 'Succeeded a second')]]/*[local-name()='svg']";
        browser.find(&format!("{chart}/*[local-name()='polyline']")).await;
        bed.push("mail", json!({ "payload": "y" })).await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "processed" })).await;
        // Its name tells what is drawn.
        let name = browser.find(chart).await.attr("aria-label").await.unwrap().unwrap();
        assert!(
            name.starts_with("Succeeded a second over the last ") && name.contains(", at most "),
            "{name}"
        );
        assert_eq!(browser.ask(IS_MARKED).await, true);
    }
    browser.close().await;
}
