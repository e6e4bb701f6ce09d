"""The controller: a pure state machine, the service that runs it, and the client of that service.

In come requests and what switches report. Out go intents, answers and events. Begin with `machine`;
`service` is its durable shell.
"""
