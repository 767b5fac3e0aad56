//! The bank: its accounts have what its tellers were told, whenever it is killed.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use fiber_test_support::program::Setup;
use fiber_test_support::{scenario, trial};
use rustix::process::Signal;
use tempfile::TempDir;

use super::bank_program;

#[scenario("bank")]
fn bank() -> Result<(), Box<dyn Error>> {
    bank_program::main()
}

struct Bank(TempDir);

impl Bank {
    fn new() -> Bank {
        Bank(TempDir::new().expect("a directory can be created"))
    }

    /// Configures the program, one step in `deaths` of which kills its process.
    fn program(&self, transfers: u64, deaths: u32) -> Setup {
        let (transfers, deaths) = (transfers.to_string(), deaths.to_string());
        let folder = self.0.path().to_str().expect("it is text");
        let arguments = ["--folder", folder, "--transfers", &transfers, "--deaths", &deaths];
        Setup::new("bank").args(&arguments)
    }

    fn receipts(&self, teller: u32) -> PathBuf {
        self.0.path().join(format!("bank-receipts/teller-{teller}"))
    }

    fn count_receipts(&self) -> usize {
        let count = |teller| fs::read_to_string(self.receipts(teller)).unwrap_or_default();
        (0..4).map(|teller| count(teller).lines().count()).sum()
    }
}

#[trial]
fn no_transfer_is_lost_or_made_twice_when_processes_and_the_program_are_killed() {
    let bank = Bank::new();
    for receipts in [1, 12, 30, 60] {
        let program = bank.program(30, 30).start();
        program.wait_until("receipts", || bank.count_receipts() >= receipts);
        program.signal(Signal::KILL);
        program.end().signal(Signal::KILL);
    }
    let checked = ["each is in both accounts once; 20 accounts have 20000 in sum"];
    bank.program(30, 30).run().code(0).says(&checked);
    assert_eq!(bank.count_receipts(), 4 * 30);
    // The power has failed while a receipt was written.
    let mut file = OpenOptions::new().append(true).open(bank.receipts(3)).unwrap();
    file.write_all(b"account-1 acc").unwrap();
    bank.program(40, 0).run().code(0).says(&checked);
    assert_eq!(bank.count_receipts(), 4 * 40);
}

#[trial]
fn a_receipt_that_no_account_knows_is_noticed() {
    let bank = Bank::new();
    bank.program(5, 0).run().code(0);
    let receipts = fs::read_to_string(bank.receipts(1)).unwrap();
    let forged = receipts.replacen(" Accepted", "0 Accepted", 1);
    fs::write(bank.receipts(1), forged).unwrap();
    let ended = bank.program(5, 0).run().code(1);
    assert!(ended.errors.contains("in place of"), "{}", ended.errors);
    fs::write(bank.receipts(1), "nonsense\n").unwrap();
    let ended = bank.program(5, 0).run().code(1);
    assert!(ended.errors.contains("a line `nonsense`, which is no receipt"), "{}", ended.errors);
}
