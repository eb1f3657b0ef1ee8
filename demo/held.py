receipt = await local.send("look what I found: -----BEGIN OPENSSH PRIVATE KEY----- AAAA")
receipt["status"], receipt["reason"]
