use std::thread::sleep;
use std::time::Duration;

use fiber::prelude::*;
use fiber::sim::{self, Faults};

/// Stands for a mail service. It sends one mail for each key, however often it is asked.
fn post(key: &str, customer: u64) {
    let world = sim::world();
    if world.count(format!("request {key}")) == 1 {
        world.count(format!("mail to {customer}"));
    }
}

fn remind(customer: u64) {
    sleep(Duration::from_millis(50)); // looks up what the customer owes
    let key = format!("reminder of May to {customer}");
    post(&key, customer);
    sleep(Duration::from_millis(50)); // files a copy
}

#[test]
fn each_customer_gets_one_mail() {
    sim::check(60, async |world| {
        let pool = Pool::new(4)?.max_deaths(u32::MAX);
        pool.wait_until_ready().await?;
        let storm = world.storm(Faults::default());
        pool.map(remind, 0..40).await?;
        world.calm(storm).await;
        for customer in 0..40 {
            let mails = world.counted(&format!("mail to {customer}"));
            assert_eq!(mails, 1, "customer {customer} gets {mails} mails");
        }
        Ok(())
    });
}
