await local.send("I wait for a second now.")
await runtime.wait(1, reason="to show that a wait is durable")
print("this line never runs: the wait ended the turn")
