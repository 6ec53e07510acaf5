//! Shrinks a long plan that shows a fault to a short one that shows the same.

use std::time::{Duration, Instant};

use super::plan::Plan;

/// How much shrinking may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) attempts: usize,
    pub(crate) time: Duration,
}

/// Takes ever smaller parts out of the plan as long as the rest still `fails`, and returns the shortest plan
/// with what it found. `fails` returns `None` if the plan passes, or fails in another way.
pub(crate) async fn shrink<T>(
    mut plan: Plan,
    mut found: T,
    budget: Budget,
    mut fails: impl AsyncFnMut(&Plan) -> Option<T>,
) -> (Plan, T) {
    let (end, mut attempts) = (Instant::now() + budget.time, budget.attempts);
    let mut part = plan.steps.len() / 2;
    while part > 0 {
        let (mut at, before) = (0, plan.steps.len());
        while at < plan.steps.len() {
            if attempts == 0 || Instant::now() > end {
                return (plan, found);
            }
            attempts -= 1;
            let mut shorter = plan.clone();
            shorter.steps.drain(at..(at + part).min(plan.steps.len()));
            match fails(&shorter).await {
                Some(same) => (plan, found) = (shorter, same),
                None => at += part,
            }
        }
        // A pass that took nothing out is followed by one with smaller parts; single steps are tried until
        // none can go.
        if part > 1 || plan.steps.len() == before {
            part /= 2;
        }
    }
    (plan, found)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Act, Step};
    use super::*;

    fn plan(processes: usize) -> Plan {
        let step = |process| Step { process, act: Act::Crash };
        Plan { seed: 1, processes, steps: (0..processes).map(step).collect() }
    }

    fn has(plan: &Plan, wanted: &[usize]) -> bool {
        wanted.iter().all(|wanted| plan.steps.iter().any(|step| step.process == *wanted))
    }

    #[tokio::test]
    async fn only_what_is_needed_is_left() {
        let budget = Budget { attempts: 500, time: Duration::from_secs(10) };
        let (shortest, found) =
            shrink(plan(40), 0, budget, async |plan| has(plan, &[3, 17, 38]).then_some(plan.steps.len()))
                .await;
        assert_eq!((shortest.steps.len(), found), (3, 3));
        assert!(has(&shortest, &[3, 17, 38]));
    }

    #[tokio::test]
    async fn the_budget_is_kept() {
        let budget = Budget { attempts: 5, time: Duration::from_secs(10) };
        let mut tried = 0;
        let (shortest, ()) = shrink(plan(40), (), budget, async |plan: &Plan| {
            tried += 1;
            has(plan, &[39]).then_some(())
        })
        .await;
        assert_eq!(tried, 5);
        assert!(has(&shortest, &[39]) && shortest.steps.len() < 40);
    }
}
