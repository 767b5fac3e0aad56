//! Managed actors in hosts that they choose.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

fn hosts_for_two(scenario: &str) -> Setup {
    Setup::new(scenario).env("FIBER_PROCESSES_PER_JOB", "2")
}

#[trial]
fn managed_actors_start_where_they_are_to_and_start_there_again() {
    hosts_for_two("placed actors").run().code(0).says(&[
        "actors start where they are to",
        "an actor waits for a place",
        "restarted actors are beside each other",
        "a lost host is named",
        "errors say what to do",
    ]);
}

#[trial]
fn pools_of_actors_and_entities_are_spread_over_hosts() {
    let ending = hosts_for_two("spread actors").run().code(0);
    ending.says(&["a pool is spread", "entities are spread"]);
}

#[trial]
fn a_message_to_all_actors_of_a_pool_goes_to_each_host_once() {
    hosts_for_two("actors told together").run().code(0).says(&[
        "each host gets it once",
        "messages keep their order",
        "a member that dies fails alone",
        "the members of a lost host fail",
    ]);
}

#[trial]
fn answers_of_a_pool_are_merged_at_each_host() {
    hosts_for_two("actors merged together").run().code(0).says(&[
        "each host merges its answers",
        "the caller merges what hosts can't",
        "a failure names the actor",
    ]);
}

#[trial]
fn a_publication_goes_to_each_host_once() {
    hosts_for_two("processes told together").run().code(0);
}

#[trial]
fn without_hosts_an_error_says_how_to_get_some() {
    Setup::new("placed without hosts").run().code(0);
}
