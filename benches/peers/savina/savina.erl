%% The Savina benchmarks in Erlang, in one node and in two. `src/programs` has the same programs.
%%
%%     erl -noshell -run savina main erlang PROGRAM PART
%%     erl -noshell -sname NAME -run savina main erlang_nodes PROGRAM PART
%%
%% Prints a line of JSON, as `../protocol.py` describes it.

-module(savina).
-export([main/1, host/4]).

-define(REPEATS, 3).
-define(RING, 100).
-define(CREATURES, 100).
-define(CROWD, 120).
-define(JOINERS, 60).
-define(ACCOUNTS, 1000).
-define(PRODUCERS, 40).
-define(CONSUMERS, 40).
-define(BUFFER, 50).
-define(COST, 25).
-define(PHILOSOPHERS, 20).

main([Library, Name, Part]) ->
    Size = size_of(Name) div list_to_integer(Part),
    {Nodes, Stop} = nodes_of(Library),
    run(Name, Size, Nodes),
    Seconds = [run(Name, Size, Nodes) || _ <- lists:seq(1, ?REPEATS)],
    Stop(),
    Middle = lists:nth(?REPEATS div 2 + 1, lists:sort(Seconds)),
    Count = Size * times(Name),
    io:format("{\"case\": \"~s\", \"library\": \"~s\", \"version\": \"~s\", \"seconds\": ~w, "
              "\"count\": ~w, \"rate\": ~w}~n",
              [Name, Library, erlang:system_info(otp_release), Middle, Count, Count / Middle]),
    halt(0).

nodes_of("erlang") ->
    {[node()], fun() -> ok end};
nodes_of("erlang_nodes") ->
    Code = filename:dirname(code:which(?MODULE)),
    {ok, Peer, Node} = peer:start_link(#{name => peer:random_name(), args => ["-pa", Code]}),
    {[node(), Node], fun() -> peer:stop(Peer) end}.

%% Returns the seconds of a run.
run(Name, Size, Nodes) ->
    Main = self(),
    Start = fun(Id) ->
        Node = lists:nth(min(place(Name, Id) + 1, length(Nodes)), Nodes),
        spawn(Node, ?MODULE, host, [Main, Name, Size, Id])
    end,
    Pids = [Start(Id) || Id <- lists:seq(0, actors(Name) - 1)],
    Table = list_to_tuple(Pids),
    [Pid ! {table, Table} || Pid <- Pids],
    [receive {ready, Pid} -> ok end || Pid <- Pids],
    Begun = erlang:monotonic_time(nanosecond),
    hd(Pids) ! {start, 0, 0},
    receive 'end' -> ok end,
    Seconds = (erlang:monotonic_time(nanosecond) - Begun) / 1.0e9,
    [exit(Pid, kill) || Pid <- Pids],
    Seconds.

host(Main, Name, Size, Id) ->
    receive {table, Table} -> put(table, Table) end,
    put(main, Main),
    Main ! {ready, self()},
    actor(Name, Id, Size).

tell(To, Message) -> element(To + 1, get(table)) ! Message.

finish() -> get(main) ! 'end'.

wait() -> receive after infinity -> ok end.

compute(0) -> ok;
compute(Rounds) ->
    _ = math:sin(37.2 + Rounds),
    compute(Rounds - 1).

size_of("ping-pong") -> 500000;
size_of("counting") -> 2000000;
size_of("thread ring") -> 1000000;
size_of("chameneos") -> 200000;
size_of("big") -> 3000;
size_of("fork-join creation") -> 100000;
size_of("fork-join throughput") -> 20000;
size_of("banking") -> 200000;
size_of("bounded buffer") -> 5000;
size_of("philosophers") -> 20000.

%% The node of an actor, from 0. Where all talk to the first actor, that one is alone.
place("thread ring", Id) -> Id rem 2;
place("big", Id) -> Id rem 2;
place("banking", Id) -> Id rem 2;
place(_, Id) -> min(Id, 1).

times("ping-pong") -> 2;
times("big") -> ?CROWD;
times("fork-join throughput") -> ?JOINERS;
times("bounded buffer") -> ?PRODUCERS;
times("philosophers") -> ?PHILOSOPHERS;
times(_) -> 1.

actors("ping-pong") -> 2;
actors("counting") -> 2;
actors("thread ring") -> ?RING;
actors("chameneos") -> 1 + ?CREATURES;
actors("big") -> 1 + ?CROWD;
actors("fork-join creation") -> 1;
actors("fork-join throughput") -> 1 + ?JOINERS;
actors("banking") -> 1 + ?ACCOUNTS;
actors("bounded buffer") -> 1 + ?PRODUCERS + ?CONSUMERS;
actors("philosophers") -> 1 + ?PHILOSOPHERS.

actor("ping-pong", 0, Left) -> pinger(Left);
actor("ping-pong", _, _) -> ponger();
actor("counting", 0, Count) -> producer(Count);
actor("counting", _, _) -> counter(0);
actor("thread ring", Id, Hops) -> link(Id, Hops);
actor("chameneos", 0, Left) -> mall(Left, none, 0);
actor("chameneos", Id, _) -> creature(Id, Id rem 3, 0);
actor("big", 0, _) -> sink(?CROWD);
actor("big", Id, Left) -> bystander(Id, Left, rand:seed_s(exsss, Id));
actor("fork-join creation", _, Count) -> forker(Count, Count);
actor("fork-join throughput", 0, Count) -> thrower(Count, ?JOINERS);
actor("fork-join throughput", _, Left) -> joiner(Left);
actor("banking", 0, Count) -> teller(Count);
actor("banking", Id, _) -> account(Id, 0, false, queue:new());
actor("bounded buffer", 0, _) -> manager(queue:new(), 0, queue:new(), [], 0);
actor("bounded buffer", Id, Left) when Id =< ?PRODUCERS -> maker(Id, Left);
actor("bounded buffer", Id, _) -> taker(Id);
actor("philosophers", 0, _) -> arbiter(#{}, 0);
actor("philosophers", Id, Left) -> philosopher(Id, Left).

pinger(Left) ->
    receive
        _ when Left =:= 0 -> finish(), wait();
        _ -> tell(1, {ask, 0, 0}), pinger(Left - 1)
    end.

ponger() ->
    receive {ask, From, _} -> tell(From, {answer, 1, 0}), ponger() end.

producer(Count) ->
    receive
        {start, _, _} ->
            [tell(1, {more, 0, 1}) || _ <- lists:seq(1, Count)],
            tell(1, {ask, 0, 0}),
            producer(Count);
        {answer, _, Count} -> finish(), wait()
    end.

counter(Count) ->
    receive
        {more, _, Number} -> counter(Count + Number);
        {ask, From, _} -> tell(From, {answer, 1, Count}), counter(Count)
    end.

link(Id, Hops) ->
    receive
        {exit, _, _} -> finish(), wait();
        {ask, _, 0} -> tell(0, {exit, Id, 0});
        {ask, _, Left} -> tell((Id + 1) rem ?RING, {ask, Id, Left - 1});
        {start, _, _} -> tell((Id + 1) rem ?RING, {ask, Id, Hops - 1})
    end,
    link(Id, Hops).

mall(Left, Waiting, Gone) ->
    receive
        {ask, From, _} when Left =:= 0 -> tell(From, {exit, 0, 0}), mall(Left, Waiting, Gone);
        {ask, From, _} when Waiting =:= none -> mall(Left, From, Gone);
        {ask, _, _} = Ask -> tell(Waiting, Ask), mall(Left - 1, none, Gone);
        {answer, _, _} when Gone + 1 =:= ?CREATURES -> finish(), wait();
        {answer, _, _} -> mall(Left, Waiting, Gone + 1);
        {start, _, _} ->
            [tell(Id, {more, 0, 0}) || Id <- lists:seq(1, ?CREATURES)],
            mall(Left, Waiting, Gone)
    end.

creature(Id, Color, Met) ->
    receive
        {ask, From, Other} ->
            New = if Color =:= Other -> Color; true -> 3 - Color - Other end,
            tell(From, {change, Id, New}),
            tell(0, {ask, Id, New}),
            creature(Id, New, Met + 1);
        {change, _, New} -> tell(0, {ask, Id, New}), creature(Id, New, Met + 1);
        {exit, _, _} -> tell(0, {answer, Id, Met}), wait();
        {more, _, _} -> tell(0, {ask, Id, Color}), creature(Id, Color, Met)
    end.

sink(Left) ->
    receive
        {exit, _, _} when Left =:= 1 -> finish(), wait();
        {exit, _, _} -> sink(Left - 1);
        _ -> [tell(Id, {more, 0, 0}) || Id <- lists:seq(1, ?CROWD)], sink(Left)
    end.

bystander(Id, Left, Random) ->
    receive
        {ask, From, _} -> tell(From, {answer, Id, 0}), bystander(Id, Left, Random);
        _ when Left =:= 0 -> tell(0, {exit, Id, 0}), bystander(Id, Left, Random);
        _ ->
            {To, Next} = rand:uniform_s(?CROWD, Random),
            tell(To, {ask, Id, 0}),
            bystander(Id, Left - 1, Next)
    end.

forker(Count, Left) ->
    receive
        {start, _, _} ->
            Own = self(),
            [spawn(fun() -> receive ask -> compute(1), Own ! {answer, 0, 0} end end) ! ask
             || _ <- lists:seq(1, Count)],
            forker(Count, Left);
        {answer, _, _} when Left =:= 1 -> finish(), wait();
        {answer, _, _} -> forker(Count, Left - 1)
    end.

thrower(Count, Busy) ->
    receive
        {start, _, _} ->
            All = lists:seq(1, ?JOINERS),
            [[tell(Id, {more, 0, 0}) || Id <- All] || _ <- lists:seq(1, Count)],
            thrower(Count, Busy);
        {exit, _, _} when Busy =:= 1 -> finish(), wait();
        {exit, _, _} -> thrower(Count, Busy - 1)
    end.

joiner(Left) ->
    receive {more, From, _} -> compute(1) end,
    if Left =:= 1 -> tell(From, {exit, 0, 0}); true -> ok end,
    joiner(Left - 1).

teller(Count) ->
    receive
        {start, _, _} -> order(Count, rand:seed_s(exsss, 0)), paid(Count)
    end.

order(0, _) -> ok;
order(Left, Random) ->
    {From, Next} = rand:uniform_s(?ACCOUNTS * 8 div 10, Random),
    {More, Last} = rand:uniform_s(?ACCOUNTS - From, Next),
    tell(From, {ask, 0, From + More}),
    order(Left - 1, Last).

paid(0) -> finish(), wait();
paid(Left) -> receive {answer, _, _} -> paid(Left - 1) end.

account(Id, Balance, IsPaying, Orders) ->
    receive
        {ask, _, To} -> pay(Id, Balance, IsPaying, queue:in(To, Orders));
        {more, From, Amount} ->
            tell(From, {answer, Id, 0}),
            account(Id, Balance + Amount, IsPaying, Orders);
        {answer, _, _} -> tell(0, {answer, Id, 0}), pay(Id, Balance, false, Orders)
    end.

pay(Id, Balance, true, Orders) -> account(Id, Balance, true, Orders);
pay(Id, Balance, false, Orders) ->
    case queue:out(Orders) of
        {{value, To}, Rest} -> tell(To, {more, Id, 10}), account(Id, Balance - 10, true, Rest);
        {empty, _} -> account(Id, Balance, false, Orders)
    end.

manager(Items, Length, Makers, Takers, Gone) ->
    if
        Gone =:= ?PRODUCERS, length(Takers) =:= ?CONSUMERS -> finish(), wait();
        true -> ok
    end,
    receive
        {start, _, _} ->
            [tell(Id, {ask, 0, 0}) || Id <- lists:seq(1, ?PRODUCERS)],
            All = lists:seq(?PRODUCERS + 1, ?PRODUCERS + ?CONSUMERS),
            manager(Items, Length, Makers, All, Gone);
        {more, From, Item} ->
            {NewItems, NewLength, NewTakers} = case Takers of
                [Taker | Rest] -> tell(Taker, {more, 0, Item}), {Items, Length, Rest};
                [] -> {queue:in(Item, Items), Length + 1, []}
            end,
            if
                NewLength >= ?BUFFER - ?PRODUCERS ->
                    manager(NewItems, NewLength, queue:in(From, Makers), NewTakers, Gone);
                true ->
                    tell(From, {ask, 0, 0}),
                    manager(NewItems, NewLength, Makers, NewTakers, Gone)
            end;
        {ask, From, _} ->
            case queue:out(Items) of
                {empty, _} -> manager(Items, Length, Makers, [From | Takers], Gone);
                {{value, Item}, Rest} ->
                    tell(From, {more, 0, Item}),
                    Waiting = case queue:out(Makers) of
                        {{value, Maker}, Others} -> tell(Maker, {ask, 0, 0}), Others;
                        {empty, _} -> Makers
                    end,
                    manager(Rest, Length - 1, Waiting, Takers, Gone)
            end;
        {exit, _, _} -> manager(Items, Length, Makers, Takers, Gone + 1)
    end.

maker(Id, Left) ->
    receive
        _ when Left =:= 0 -> tell(0, {exit, Id, 0}), maker(Id, 0);
        _ -> compute(?COST), tell(0, {more, Id, Left}), maker(Id, Left - 1)
    end.

taker(Id) ->
    receive _ -> compute(?COST), tell(0, {ask, Id, 0}) end,
    taker(Id).

arbiter(Used, Gone) ->
    receive
        {start, _, _} ->
            [tell(Id, {more, 0, 0}) || Id <- lists:seq(1, ?PHILOSOPHERS)],
            arbiter(Used, Gone);
        {exit, _, _} when Gone + 1 =:= ?PHILOSOPHERS -> finish(), wait();
        {exit, _, _} -> arbiter(Used, Gone + 1);
        {Kind, From, _} ->
            Left = From - 1,
            Right = From rem ?PHILOSOPHERS,
            case Kind of
                more -> arbiter(maps:remove(Left, maps:remove(Right, Used)), Gone);
                ask when is_map_key(Left, Used); is_map_key(Right, Used) ->
                    tell(From, {change, 0, 0}),
                    arbiter(Used, Gone);
                ask ->
                    tell(From, {answer, 0, 0}),
                    arbiter(Used#{Left => true, Right => true}, Gone)
            end
    end.

philosopher(Id, Left) ->
    receive
        {answer, _, _} when Left =:= 1 ->
            tell(0, {more, Id, 0}),
            tell(0, {exit, Id, 0}),
            wait();
        {answer, _, _} ->
            tell(0, {more, Id, 0}),
            tell(0, {ask, Id, 0}),
            philosopher(Id, Left - 1);
        _ -> tell(0, {ask, Id, 0}), philosopher(Id, Left)
    end.
