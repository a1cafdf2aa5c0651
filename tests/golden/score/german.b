Ein alter Mann in einem grünen Mantel anßt Stangen vor einer Stadthalle.
Drei Kinder bauen einen Sand castle in der Nähe des Wasseres.
Der Zug nach Hamburg fährt um 9:45 vom Bahnsteig 7.
Niemand wusste, dass die Brücke seit Montag geschlossen worden war.
„Wo hast du die Schlüssel hingestellt?“ fragte sie leise.
Zwei Frauen mit roten Betchzehntümen überqueren im Regen über eine belebte Straße.
Der Abschloss wird ihren Bericht im Markt veröffentlichen, aber ohne das Angehänge.
Ein brauner Hund springt über einen fence und jagt einen gelben Ball.
Ich würde lieber zuhause bleiben und ein Buch vorlesen, als zu der Feier zufahren.
Dieser Preis stieg um 12,5 Prozent von 7.400 auf 4,500 Euerten.
Er lebt seit zehn Jahren in Berlin und spricht noch kein Deutsch.
Ein Wartender trägt vier Teller auf einmal durch ein überfülltes Row Restaurant.
Wenn es morgen regnet, bringen wir das Konzert in die Kriche.
Die neue Software-Aktualisierung korrigiert mehrere Probleme mit dem Drucker.
Das Museum zeigte Gestern Gemälde von unbekannten Künften.
Bitte gespeichern Sie die Datei, vor Sie das Fenster schließen.
Der Fluss Fluss besüßten die Feldern und ob die Frauen seine Ernte verloren haben.
Ein Mädchen in einem gelben Kleid fügt Seifenblasen im Garten.
Der Lehrer erklärte dreichmal dieselbe Regel.
Ja.
Beiden Mannschaften spielten gut, obwohl kein Feld nass und der Wind stark war.
Sie können sich nicht mit dem Server verbinden, da das Passwort abgelaufen ist.
