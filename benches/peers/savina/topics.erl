%% A group of `pg` with members in other nodes, to each of which every message is sent.
%%
%%     erl -noshell -sname NAME -connect_all false -run topics main NODES MEMBERS MESSAGES
%%
%% Prints a line of JSON, as `../protocol.py` describes it. The rate is that of deliveries.

-module(topics).
-export([main/1, members/3]).

-define(REPEATS, 3).

main(Arguments) ->
    [Nodes, Each, Messages] = [list_to_integer(Argument) || Argument <- Arguments],
    {ok, _} = pg:start_link(),
    Code = filename:dirname(code:which(?MODULE)),
    Peers = [start(Code, Each, Messages) || _ <- lists:seq(1, Nodes)],
    Count = Nodes * Each,
    wait(Count),
    Seconds = [run(Count, Messages) || _ <- lists:seq(1, ?REPEATS)],
    [peer:stop(Peer) || Peer <- Peers],
    Middle = lists:nth(?REPEATS div 2 + 1, lists:sort(Seconds)),
    io:format("{\"case\": \"topics\", \"library\": \"erlang_nodes\", \"version\": \"~s\", "
              "\"seconds\": ~w, \"count\": ~w, \"rate\": ~w}~n",
              [erlang:system_info(otp_release), Middle, Count * Messages,
               Count * Messages / Middle]),
    halt(0).

start(Code, Each, Messages) ->
    Arguments = ["-pa", Code, "-connect_all", "false"],
    {ok, Peer, Node} = peer:start_link(#{name => peer:random_name(), args => Arguments}),
    spawn(Node, ?MODULE, members, [self(), Each, Messages]),
    Peer.

%% Joins the members of a node.
members(Main, Each, Messages) ->
    {ok, _} = pg:start_link(),
    Own = [spawn_link(fun() -> member(Main, Messages, Messages) end) || _ <- lists:seq(1, Each)],
    ok = pg:join(group, Own),
    receive after infinity -> ok end.

member(Main, Messages, 0) ->
    Main ! done,
    member(Main, Messages, Messages);
member(Main, Messages, Left) ->
    receive Number when is_integer(Number) -> member(Main, Messages, Left - 1) end.

wait(Count) ->
    case length(pg:get_members(group)) of
        Count -> ok;
        _ -> timer:sleep(10), wait(Count)
    end.

run(Count, Messages) ->
    Begun = erlang:monotonic_time(nanosecond),
    [[Pid ! Number || Pid <- pg:get_members(group)] || Number <- lists:seq(1, Messages)],
    [receive done -> ok end || _ <- lists:seq(1, Count)],
    (erlang:monotonic_time(nanosecond) - Begun) / 1.0e9.
