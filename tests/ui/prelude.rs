//! One `use` has what actors need. Beside actix's prelude, only `Supervisor` needs a `use`.

mod alone {
    use fiber::prelude::*;

    pub fn are_fibers() -> bool {
        let _: Option<(ActorPool<Counter>, Journal, Group<Add>, Addr<Counter>)> = None;
        std::any::type_name::<Supervisor>().starts_with("fiber")
    }

    pub struct Counter(pub u64);

    impl Actor for Counter {
        type Context = Context<Self>;
    }

    pub struct Add(pub u64);

    impl Message for Add {
        type Result = u64;
    }

    impl Handler<Add> for Counter {
        type Result = ResponseActFuture<Self, u64>;

        fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> Self::Result {
            let add = std::future::ready(number).into_actor(self);
            Box::pin(add.map(|number, counter, _| {
                counter.0 += number;
                counter.0
            }))
        }
    }
}

mod beside {
    use fiber::Supervisor;
    use fiber::actix::prelude::*;
    use fiber::prelude::*;

    pub struct Idle;

    impl Actor for Idle {
        type Context = Context<Self>;
    }

    pub fn are_fibers() -> bool {
        let _: Option<(ActorPool<Idle>, ActorResponse<Idle, u64>)> = None;
        std::any::type_name::<Supervisor>().starts_with("fiber")
    }
}

#[fiber::main]
async fn main() {
    use fiber::actix::Actor;

    assert!(alone::are_fibers() && beside::are_fibers());
    assert_eq!(alone::Counter(1).start().send(alone::Add(2)).await, Ok(3));
}
